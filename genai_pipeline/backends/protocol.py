"""What the engine needs of an inference runtime: loaded graphs, and bindings of caller-owned buffers.

The engine asks a loaded graph what it can do (``Abilities``) and where it keeps memory (``Memory``); it never tests
the name of a backend or of a provider.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.placement import Shortfall
from genai_pipeline.graph.signature import GraphSignature


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory a graph reads or writes: an address, a C-contiguous shape, a dtype, and what keeps it alive.

    ``device`` is whose address it is: "cpu", or the device of the ``Memory`` that gave it.
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: object = field(default=None, compare=False)
    device: str = "cpu"

    @staticmethod
    def of(array: NDArray[Any]) -> Buffer:
        """The buffer of a C-contiguous array."""
        assert array.flags.c_contiguous
        return Buffer(array.__array_interface__["data"][0], array.shape, array.dtype, array)

    def array(self) -> NDArray[Any]:
        """An array over the same memory, which must be the host's."""
        size = math.prod(self.shape)
        if size == 0:
            return np.empty(self.shape, self.dtype)
        raw: Any = (ctypes.c_char * (size * self.dtype.itemsize)).from_address(self.address)
        view: NDArray[Any] = np.frombuffer(raw, self.dtype)
        return view.reshape(self.shape)

    def shaped(self, shape: tuple[int, ...]) -> Buffer:
        """The memory from the same address on in another shape; much cheaper than ``of`` in a decode step."""
        return Buffer(self.address, shape, self.dtype, self.owner, self.device)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a loaded graph can do, as far as the engine plans by it.

    ``in_place``: update kinds of state whose past and present may be one buffer; the state of the others is gathered
    before each run, and what is new is taken over after it. ``alone_on_past``: update kinds with which a run that
    takes several tokens on top of a past is for one row only. ``cancels``: whether ``Binding.cancel`` ends a run early.
    """

    in_place: frozenset[str] = frozenset({"in_place", "scatter"})
    alone_on_past: frozenset[str] = frozenset({"in_place"})
    cancels: bool = False


class Memory(Protocol):
    """Memory of a device that the host cannot address; arrays cross only by copies.

    Addresses count bytes: a part of what was allocated is a buffer at a later address, with the same owner.
    """

    @property
    def device(self) -> str:
        """Its name in buffers: "cuda:0", ..."""

    @property
    def free(self) -> int | None:
        """Bytes that may still be allocated; None: the device does not say."""

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """New memory, all zero, kept by the buffer's owner. Raises CapacityError when there is not enough."""

    def write(self, buffer: Buffer, array: NDArray[Any]) -> None:
        """Copy an array of the buffer's shape and dtype into it."""

    def read(self, buffer: Buffer) -> NDArray[Any]:
        """A copy of a buffer on the host."""

    def copy(self, source: Buffer, target: Buffer) -> None:
        """Copy a buffer into another of the same shape and dtype that it does not overlap, within the device."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One run of one node, as its runtime tells: ``started`` in seconds on the clock of time.perf_counter."""

    node: str
    op: str
    provider: str
    thread: int  # of the host, that ran it
    started: float
    seconds: float


class Binding(Protocol):
    """Ports of one graph bound to buffers; kept across runs, so that only what changed is bound again.

    A buffer may lie on the host or on the graph's own device; what lies on the host is read at each run.
    """

    def bind_input(self, port: str, buffer: Buffer) -> None:
        """Read ``port`` from ``buffer`` from the next run on."""

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        """Write ``port`` into ``buffer``, or into memory of the backend's own (None)."""

    def run(self) -> None:
        """Run the graph once. Raises GraphRunError; bound outputs are then undefined."""

    def output(self, port: str) -> NDArray[Any]:
        """The value of an output that was bound to None, on the host, valid until the next run."""

    def cancel(self) -> None:
        """End the run in progress, and those that follow, until ``resume``: they raise GraphRunError. From any thread.

        Without effect where the graph's abilities do not name it.
        """

    def resume(self) -> None:
        """Let runs go on to their end again. From any thread."""


class LoadedGraph(Protocol):
    """One graph ready to run."""

    @property
    def signature(self) -> GraphSignature:
        """Ports as the loaded graph has them, after load-time rewrites."""

    @property
    def backend(self) -> str:
        """The backend that loaded it, for people to read."""

    @property
    def abilities(self) -> Abilities:
        """What it can do."""

    @property
    def memory(self) -> Memory | None:
        """Where state lives best; None: on the host."""

    @property
    def placement(self) -> Mapping[str, int]:
        """How many nodes each provider that really runs some has, the first choice first."""

    @property
    def shortfall(self) -> Shortfall:
        """What of the providers that were asked for was not met."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the load could not honour as asked, e.g. a provider it fell back from; for people to read."""

    @property
    def logit_rows(self) -> bool:
        """Whether the graph takes ``logit_rows`` (int64 [n], indices into the flattened b*S rows) and its logits
        output has shape [n, vocabulary] instead of [b, S, vocabulary]."""

    @property
    def graph_seconds(self) -> float:
        """Seconds spent inside graph runs since loading."""

    def binding(self) -> Binding:
        """A new, empty binding."""

    def end_profile(self) -> Iterable[NodeRun]:
        """Stop profiling, give what ran, and remove what the runtime wrote; nothing where no profile was asked for.

        Runs that follow are not told of.
        """

    def close(self) -> None:
        """Free the graph."""


@runtime_checkable
class Backend(Protocol):
    """A runtime that loads graphs."""

    @property
    def name(self) -> str:
        """The name users select it by."""

    def version(self) -> str:
        """The version of its runtime. Raises RuntimeMissingError."""

    def providers(self) -> tuple[str, ...]:
        """Short names of the providers it has itself, the most able first. Raises RuntimeMissingError."""

    def find(self, asked: str) -> str:
        """The short name of one provider that it can run graphs on, given what ``--provider`` takes.

        Raises ProviderUnavailableError, which says what there is and how to get it, or OptionError.
        """

    def load(self, request: LoadRequest) -> LoadedGraph:
        """Load one graph. Raises GraphLoadError or ProviderUnavailableError."""


# Gives the folder of a key, made by a function of its path where it is not there, or (True) is to be made anew. It
# comes whole or not at all. Raises GenaiError where that is not possible.
CompiledStore = Callable[[str, Callable[[Path], None], bool], Path]


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What a backend needs to load one component's graph.

    ``providers`` are names, or what ``--provider`` takes: ``NAME|key=value`` or ``plugin:LIBRARY|key=value``; none: the
    backend's default.
    """

    component: str
    path: str  # absolute path of the ONNX file, already checked to be inside the package
    root: str  # the package folder, which external data must not leave
    logits: str | None = None  # output port to rewrite so that only asked-for rows are computed
    providers: tuple[str, ...] = ("cpu",)
    providers_required: bool = False  # asked for by name: absence is an error, not a fallback
    provider_options: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    config: tuple[tuple[str, str], ...] = ()
    profile: str | None = None  # where the runtime's own profile goes: the beginning of a file name
    store: CompiledStore | None = None  # keeps what providers compile, for components that ask for it

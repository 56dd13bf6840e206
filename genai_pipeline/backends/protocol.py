"""What the engine needs of an inference runtime: loaded graphs, and bindings of caller-owned buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.graph.signature import GraphSignature


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory a graph reads or writes: an address, a C-contiguous shape, a dtype, and what keeps it alive."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: object = field(default=None, compare=False)

    @staticmethod
    def of(array: NDArray[Any]) -> Buffer:
        """The buffer of a C-contiguous array."""
        assert array.flags.c_contiguous
        return Buffer(array.__array_interface__["data"][0], array.shape, array.dtype, array)

    def shaped(self, shape: tuple[int, ...]) -> Buffer:
        """The memory from the same address on in another shape; much cheaper than ``of`` in a decode step."""
        return Buffer(self.address, shape, self.dtype, self.owner)


class Binding(Protocol):
    """Ports of one graph bound to buffers; kept across runs, so that only what changed is bound again."""

    def bind_input(self, port: str, buffer: Buffer) -> None:
        """Read ``port`` from ``buffer`` from the next run on."""

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        """Write ``port`` into ``buffer``, or into memory of the backend's own (None)."""

    def run(self) -> None:
        """Run the graph once. Raises GraphRunError; bound outputs are then undefined."""

    def output(self, port: str) -> NDArray[Any]:
        """The value of an output that was bound to None, valid until the next run."""


class LoadedGraph(Protocol):
    """One graph ready to run."""

    @property
    def signature(self) -> GraphSignature:
        """Ports as the loaded graph has them, after load-time rewrites."""

    @property
    def device(self) -> str:
        """Where its buffers live: "cpu", "cuda:0", ..."""

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers that really run it, in order."""

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

    def close(self) -> None:
        """Free the graph."""


class Backend(Protocol):
    """A runtime that loads graphs."""

    @property
    def name(self) -> str:
        """The name users select it by."""

    def load(self, request: LoadRequest) -> LoadedGraph:
        """Load one graph. Raises GraphLoadError or ProviderUnavailableError."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What a backend needs to load one component's graph."""

    component: str
    path: str  # absolute path of the ONNX file, already checked to be inside the package
    root: str  # the package folder, which external data must not leave
    logits: str | None = None  # output port to rewrite so that only asked-for rows are computed
    providers: tuple[str, ...] = ("cpu",)
    providers_required: bool = False  # asked for by name: absence is an error, not a fallback
    provider_options: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    config: tuple[tuple[str, str], ...] = ()

"""A device with memory of its own, emulated: any backend that runs on the host, behind addresses that no host has.

State that graphs update in place must lie in this memory, as on a device. Whoever takes an address of it for one of the
host's ends in a segmentation fault, and whoever binds such state on the host in an assertion.

    from genai_pipeline.backends import registry
    from genai_pipeline.backends.ort import OrtBackend

    registry.register("emulated", lambda threads: SeparateBackend(OrtBackend(threads), SeparateMemory()))
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.errors import CapacityError

if TYPE_CHECKING:
    from genai_pipeline.backends.protocol import Backend, Binding, LoadedGraph, LoadRequest

FIRST_ADDRESS = 1 << 60  # no process has anything here


@dataclass(slots=True)
class Crossings:
    """Bytes that were copied: from the host to the device, back, and within it."""

    written: int = 0
    read: int = 0
    copied: int = 0


class SeparateMemory:
    """The memory; ``limit``: bytes of it (None: no limit is known). A block is freed with the last buffer of it."""

    def __init__(self, device: str = "emulated:0", limit: int | None = None) -> None:
        self.device = device
        self.crossings = Crossings()
        self._limit = limit
        self._next = FIRST_ADDRESS
        self._starts: list[int] = []
        self._blocks: list[_Block] = []

    @property
    def free(self) -> int | None:
        """Bytes that may still be allocated."""
        return None if self._limit is None else self._limit - self.used

    @property
    def used(self) -> int:
        """Bytes of all blocks."""
        return sum(block.content.nbytes for block in self._blocks)

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """New memory, all zero. Raises CapacityError past the limit."""
        block = _Block(np.zeros(int(np.prod(shape)) * dtype.itemsize, np.uint8))
        if self.free is not None and self.free < block.content.nbytes:
            raise CapacityError(f"{self.device} has {self.free} bytes left, not {block.content.nbytes}")
        start = self._next
        self._next += block.content.nbytes + 4096  # what runs over the end of a block is in none
        self._starts.append(start)
        self._blocks.append(block)
        return Buffer(start, shape, dtype, _Owner(self, start), self.device)

    def write(self, buffer: Buffer, array: NDArray[Any]) -> None:
        """Copy an array into a buffer."""
        assert (array.shape, array.dtype) == (buffer.shape, buffer.dtype)
        self.crossings.written += array.nbytes
        self._array(buffer)[...] = array

    def read(self, buffer: Buffer) -> NDArray[Any]:
        """A copy of a buffer."""
        array = self._array(buffer).copy()
        self.crossings.read += array.nbytes
        return array

    def copy(self, source: Buffer, target: Buffer) -> None:
        """Copy a buffer into another."""
        assert (source.shape, source.dtype) == (target.shape, target.dtype)
        assert not np.may_share_memory(self._array(source), self._array(target))
        self.crossings.copied += self._array(source).nbytes
        self._array(target)[...] = self._array(source)

    def on_host(self, buffer: Buffer) -> Buffer:
        """The same memory as the backend below knows it."""
        array = self._array(buffer)
        return Buffer(array.__array_interface__["data"][0], buffer.shape, buffer.dtype, (array, buffer.owner))

    def free_block(self, start: int) -> None:
        """Forget the block at an address."""
        place = self._starts.index(start)
        del self._starts[place], self._blocks[place]

    def _array(self, buffer: Buffer) -> NDArray[Any]:
        assert buffer.device == self.device, f"a buffer of {buffer.device}"
        place = bisect_right(self._starts, buffer.address) - 1
        assert place >= 0, "no memory of this device"
        offset, content = buffer.address - self._starts[place], self._blocks[place].content
        nbytes = int(np.prod(buffer.shape)) * buffer.dtype.itemsize
        assert offset + nbytes <= content.nbytes, "past the end of a block"
        return content[offset : offset + nbytes].view(buffer.dtype).reshape(buffer.shape)


@dataclass(slots=True)
class _Block:
    content: NDArray[np.uint8]


class _Owner:
    """Keeps a block while any buffer of it is there."""

    def __init__(self, memory: SeparateMemory, start: int) -> None:
        self._memory, self._start = memory, start

    def __del__(self) -> None:
        self._memory.free_block(self._start)


class SeparateBackend:
    """Loads graphs through another backend, with their state in ``memory``."""

    def __init__(self, inner: Backend, memory: SeparateMemory, name: str = "emulated") -> None:
        self.name = name
        self._inner = inner
        self._memory = memory

    def version(self) -> str:
        """That of the backend below."""
        return self._inner.version()

    def providers(self) -> tuple[str, ...]:
        """Those of the backend below."""
        return self._inner.providers()

    def find(self, asked: str) -> str:
        """What the backend below finds."""
        return self._inner.find(asked)

    def load(self, request: LoadRequest) -> LoadedGraph:
        """Load one graph."""
        graph: Any = SeparateGraph(self._inner.load(request), self._memory, self.name)
        return graph  # type: ignore[no-any-return]


class SeparateGraph:
    """A graph of the backend below but for where its state is; what is not here is that one's."""

    def __init__(self, inner: LoadedGraph, memory: SeparateMemory, backend: str) -> None:
        self._inner = inner
        self._bindings: WeakSet[SeparateBinding] = WeakSet()
        self.memory = memory
        self.backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def binding(self) -> SeparateBinding:
        """A new, empty binding."""
        made = SeparateBinding(self._inner.binding(), self.memory)
        self._bindings.add(made)
        return made

    def close(self) -> None:
        """Free the graph, and what its bindings hold."""
        for binding in list(self._bindings):
            binding.close()
        self._inner.close()


class SeparateBinding:
    """Buffers of the device become those of the backend below; state in place on the host is refused."""

    def __init__(self, inner: Binding, memory: SeparateMemory) -> None:
        self._inner = inner
        self._memory = memory
        self._inputs: dict[str, Buffer] = {}
        self._outputs: dict[str, Buffer | None] = {}

    def bind_input(self, port: str, buffer: Buffer) -> None:
        """Read a port from a buffer of the device or of the host."""
        self._inputs[port] = buffer
        self._inner.bind_input(port, self._below(buffer))

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        """Write a port into a buffer of the device or of the host."""
        self._outputs[port] = buffer
        self._inner.bind_output(port, None if buffer is None else self._below(buffer))

    def run(self) -> None:
        """Run the graph once."""
        read = {buffer.address for buffer in self._inputs.values() if buffer.device == "cpu" and 0 not in buffer.shape}
        for port, buffer in self._outputs.items():
            in_place = buffer is not None and buffer.device == "cpu" and buffer.address in read
            assert not in_place, f"'{port}' is updated in place on the host, and not in {self._memory.device}"
        self._inner.run()

    def output(self, port: str) -> NDArray[Any]:
        """An output that was bound to None."""
        return self._inner.output(port)

    def cancel(self) -> None:
        """End the run in progress."""
        self._inner.cancel()

    def resume(self) -> None:
        """Let runs go on to their end again."""
        self._inner.resume()

    def close(self) -> None:
        """Let go of buffers."""
        self._inputs.clear()
        self._outputs.clear()

    def _below(self, buffer: Buffer) -> Buffer:
        return buffer if buffer.device == "cpu" else self._memory.on_host(buffer)

"""Bindings of one nxrt session: it takes arrays and gives arrays of its own, so outputs in buffers are copied there."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.nxrt_runtime import NxrtFailure, first_line, guarded
from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.errors import GraphRunError
from genai_pipeline.types import numpy_dtype

if TYPE_CHECKING:
    from genai_pipeline.backends.nxrt_graph import NxrtGraph


class NxrtBinding:
    """Ports of one session bound to caller-owned buffers, or outputs to memory of the runtime (None)."""

    def __init__(self, graph: NxrtGraph) -> None:
        self._graph = graph
        self._inputs: dict[str, Buffer] = {}
        self._views: dict[str, NDArray[Any]] = {}
        self._outputs: dict[str, Buffer | None] = {}
        self._results: dict[str, NDArray[Any]] = {}

    def bind_input(self, port: str, buffer: Buffer) -> None:
        """Read ``port`` from ``buffer`` from the next run on."""
        held = self._inputs.get(port)
        if held is None or (held.address, held.shape, held.dtype) != (buffer.address, buffer.shape, buffer.dtype):
            assert port in self._graph.signature.inputs, f"{self._graph.component} has no input '{port}'"
            self._views[port] = buffer.array()
        self._inputs[port] = buffer  # an equal buffer may have another owner to keep alive

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        """Write ``port`` into ``buffer``, or leave it where the runtime makes it (None)."""
        assert port in self._graph.signature.outputs, f"{self._graph.component} has no output '{port}'"
        self._outputs[port] = buffer

    def run(self) -> None:
        """Run the graph once. Raises GraphRunError; bound outputs are then undefined."""
        names, start = list(self._outputs), perf_counter()
        try:
            values = guarded(self._graph.session.run_with_values, names, self._views)
        except NxrtFailure as error:
            raise GraphRunError(f"component '{self._graph.component}' failed to run: {first_line(error)}") from error
        finally:
            self._graph.add_seconds(perf_counter() - start)
        self._results = {name: self._array(name, value) for name, value in zip(names, values, strict=True)}
        for name, buffer in self._outputs.items():
            if buffer is not None:
                result = self._results.pop(name)
                if (result.shape, result.dtype) != (buffer.shape, buffer.dtype):
                    what = f"{result.dtype} {result.shape} where {buffer.dtype} {buffer.shape} was to come"
                    raise GraphRunError(f"component '{self._graph.component}': output '{name}' is {what}")
                buffer.array()[...] = result

    def output(self, port: str) -> NDArray[Any]:
        """The value of an output that was bound to None."""
        assert self._outputs[port] is None
        return self._results[port]

    def cancel(self) -> None:
        """Without effect: this runtime ends its runs itself."""

    def resume(self) -> None:
        """Nothing: no run was kept from its end."""

    def close(self) -> None:
        """Let go of buffers and results."""
        for held in (self._inputs, self._views, self._outputs, self._results):
            held.clear()

    def _array(self, name: str, value: Any) -> NDArray[Any]:
        dtype = numpy_dtype(self._graph.signature.outputs[name].dtype)
        if dtype.kind in "OUSV":  # numpy has no DLPack for texts and for the smallest floats
            copied: NDArray[Any] = value.numpy()
            return copied
        array: NDArray[Any] = np.from_dlpack(value)  # keeps the memory alive by itself
        return array

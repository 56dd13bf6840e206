"""Bindings of one ONNX Runtime session: what did not change since the last run is not bound again.

This is the hot path of a decode step. ONNX Runtime's Python classes for bindings and sessions wrap native objects with
checks that cost more than the calls themselves (120 tensors on two cores: 349 us against 113 to bind, 84 us against
23 to run), so the objects they wrap, ``IOBinding._iobinding`` and ``InferenceSession._sess``, are used directly.
"""

from __future__ import annotations

import ctypes
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.dtypes import element_number
from genai_pipeline.backends.ort_errors import shorten
from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.errors import GraphRunError
from genai_pipeline.types import numpy_dtype

if TYPE_CHECKING:
    from genai_pipeline.backends.ort_graph import OrtGraph


QUIET: Final = 4  # fatal only: what goes wrong is raised, and need not be printed too


class OrtBinding:
    """Ports of one session bound to caller-owned buffers, or outputs to memory of the runtime (None)."""

    __slots__ = ("__weakref__", "_graph", "_held", "_inputs", "_io", "_options", "_order", "_outputs", "_runtime_owned")

    def __init__(self, graph: OrtGraph) -> None:
        self._graph = graph
        self._held = graph.session.io_binding()  # owns what ``_io`` refers to
        self._io = self._held._iobinding
        self._options = graph.new_run_options()
        self._options.log_severity_level = QUIET
        self._inputs: dict[str, Buffer] = {}
        self._outputs: dict[str, Buffer | None] = {}
        self._order: dict[str, int] = {}  # output port -> its place in the runtime's list of results
        self._runtime_owned: list[str] = []

    def bind_input(self, port: str, buffer: Buffer) -> None:
        """Read ``port`` from ``buffer`` from the next run on."""
        held = self._inputs.get(port)
        if held is not buffer and not (held is not None and _same(held, buffer)):
            assert port in self._graph.signature.inputs, f"{self._graph.component} has no input '{port}'"
            if not self._crosses(buffer):
                self._bind(port, buffer)
        self._inputs[port] = buffer  # an equal buffer may have another owner to keep alive

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        """Write ``port`` into ``buffer``, or into memory of the runtime's own (None)."""
        held = self._outputs.get(port)
        if buffer is None:
            if port not in self._outputs or held is not None:
                self._runtime_owned.append(port)
        else:
            if held is None or (held is not buffer and not _same(held, buffer)):
                assert port in self._graph.signature.outputs, f"{self._graph.component} has no output '{port}'"
                place = self._graph.place_of(buffer.device)
                self._io.bind_output(port, place, element_number(buffer.dtype), buffer.shape, buffer.address)
            if held is None and port in self._outputs:
                self._runtime_owned.remove(port)
            self._order.setdefault(port, len(self._order))
        self._outputs[port] = buffer

    def run(self) -> None:
        """Run the graph once. Raises GraphRunError; bound outputs are then undefined."""
        graph = self._graph
        if graph.copies_inputs:
            self._bring_inputs()
        for port in self._runtime_owned:
            # The runtime would write into the last run's result, whose shape may differ.
            self._io.bind_output(port, graph.place)
            self._order.setdefault(port, len(self._order))
        start = perf_counter()
        try:
            graph.native.run_with_iobinding(self._io, self._options)
        except Exception as error:
            raise GraphRunError(f"component '{graph.component}' failed to run: {shorten(error)}") from error
        finally:
            graph.add_seconds(perf_counter() - start)

    def _crosses(self, buffer: Buffer) -> bool:
        """Whether what a buffer holds goes to a device, which is done for each run: it may have changed."""
        return self._graph.copies_inputs and buffer.device == "cpu"

    def _bring_inputs(self) -> None:
        """Let the runtime copy what is on the host to the device. Raises GraphRunError."""
        try:
            for port, buffer in self._inputs.items():
                if self._crosses(buffer):
                    self._bind(port, buffer)
        except Exception as error:
            raise GraphRunError(f"component '{self._graph.component}' takes no input: {shorten(error)}") from error

    def _bind(self, port: str, buffer: Buffer) -> None:
        place = self._graph.place_of(buffer.device)
        self._io.bind_input(port, place, element_number(buffer.dtype), buffer.shape, buffer.address)

    def cancel(self) -> None:
        """End the run in progress, and those that follow: the runtime looks between nodes, inside subgraphs too."""
        self._options.terminate = True

    def resume(self) -> None:
        """Let runs go on to their end again."""
        self._options.terminate = False

    def close(self) -> None:
        """Let go of session and buffers."""
        self._held = self._io = None
        self._inputs.clear()
        self._outputs.clear()

    def output(self, port: str) -> NDArray[Any]:
        """The value of an output that was bound to None; read-only where it is the runtime's own memory."""
        assert self._outputs[port] is None
        value = self._io.get_outputs()[self._order[port]]
        dtype = numpy_dtype(self._graph.signature.outputs[port].dtype)
        if dtype.kind == "V":  # bfloat16 and smaller floats, for which numpy has no DLPack
            data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
            return np.frombuffer(data, dtype).reshape(value.shape())
        if dtype.kind in "OUS":
            strings: NDArray[Any] = value.numpy()
            return strings
        array: NDArray[Any] = np.from_dlpack(value)  # keeps the memory alive by itself
        return array


def _same(one: Buffer, other: Buffer) -> bool:
    return (
        one.address == other.address
        and one.shape == other.shape
        and one.dtype == other.dtype
        and one.device == other.device
    )

"""Memory of a device through ONNX Runtime: allocated as values of the runtime, copied by a graph of one node.

The runtime's Python interface copies whole values only. A binding takes any address, so a graph that gives what it gets
copies any range: from the host to the device, back, or within the device, on every provider that has its operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.cuda_driver import free_bytes
from genai_pipeline.backends.dtypes import element_number
from genai_pipeline.backends.ort_errors import shorten
from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.errors import CapacityError, GraphLoadError
from genai_pipeline.graph import onnx_file
from genai_pipeline.metadata.session_keys import PROVIDERS

# Providers whose memory has addresses that count bytes -> the runtime's word for the device, the provider that copies.
_ADDRESSED: Final = {
    "cuda": ("cuda", "cuda"),
    "tensorrt": ("cuda", "cuda"),
}
_BYTES: Final = np.dtype(np.uint8)
_FIRST_ZEROS: Final = 1 << 20  # bytes of zeros that are written; the rest is copied from them
_CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class OrtPlace:
    """A device as the runtime's ``OrtDevice.make`` knows it, and the provider that copies there."""

    kind: str
    index: int
    provider: str

    @property
    def name(self) -> str:
        """What buffers call it."""
        return f"{self.kind}:{self.index}"


class OrtMemory:
    """Memory of one device; of one thread at a time."""

    def __init__(self, runtime: Any, place: OrtPlace) -> None:
        self._runtime = runtime
        self._place = place
        self.device: str = place.name
        self.native = runtime.OrtDevice.make(place.kind, place.index)._get_c_device()
        self._host = runtime.OrtDevice.make(_CPU, 0)._get_c_device()

    @property
    def free(self) -> int | None:
        """Bytes that may still be allocated, where the driver says so."""
        return free_bytes(self._place.index) if self._place.kind == "cuda" else None

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """New memory, all zero. Raises CapacityError."""
        nbytes = math.prod(shape) * dtype.itemsize
        try:
            value = self._runtime.OrtValue.ortvalue_from_shape_and_type(
                [nbytes], np.uint8, self._place.kind, self._place.index
            )
        except Exception as error:
            raise CapacityError(
                f"{self.device} gives no {nbytes / 2**20:.0f} MiB for state: {shorten(error)}",
                hint="lower max_batch, the context length or memory",
            ) from error
        whole = Buffer(value.data_ptr(), (nbytes,), _BYTES, value, self.device)
        self._clear(whole)
        return replace(whole, shape=shape, dtype=dtype)

    def write(self, buffer: Buffer, array: NDArray[Any]) -> None:
        """Copy an array of the buffer's shape and dtype into it."""
        assert (array.shape, array.dtype) == (buffer.shape, buffer.dtype)
        self._copy(Buffer.of(np.ascontiguousarray(array)), buffer)

    def read(self, buffer: Buffer) -> NDArray[Any]:
        """A copy of a buffer on the host."""
        array = np.empty(buffer.shape, buffer.dtype)
        self._copy(buffer, Buffer.of(array))
        return array

    def copy(self, source: Buffer, target: Buffer) -> None:
        """Copy a buffer into another within the device."""
        assert (source.shape, source.dtype) == (target.shape, target.dtype)
        self._copy(source, target)

    def _clear(self, whole: Buffer) -> None:
        """Write zeros to the beginning, and double them until all of it is zero."""
        total = whole.shape[0]
        done = min(total, _FIRST_ZEROS)
        self.write(whole.shaped((done,)), np.zeros(done, np.uint8))
        while done < total:
            size = min(done, total - done)
            self.copy(whole.shaped((size,)), replace(whole, address=whole.address + done, shape=(size,)))
            done += size

    def _copy(self, source: Buffer, target: Buffer) -> None:
        nbytes = math.prod(source.shape) * source.dtype.itemsize
        if not nbytes:
            return
        session, io = self._copier
        number = element_number(_BYTES)
        io.bind_input("source", self._native(source), number, (nbytes,), source.address)
        io.bind_output("target", self._native(target), number, (nbytes,), target.address)
        session.run_with_iobinding(io, None)
        io.clear_binding_inputs()  # what crossed to the device is a copy, which would stay

    def _native(self, buffer: Buffer) -> Any:
        assert buffer.device in (_CPU, self.device), f"a buffer of {buffer.device}"
        return self.native if buffer.device == self.device else self._host

    @cached_property
    def _copier(self) -> tuple[Any, Any]:
        """A session that copies bytes, and its binding."""
        options = self._runtime.SessionOptions()
        options.use_per_session_threads = False
        provider = PROVIDERS[self._place.provider]
        chosen = (provider, {} if self._place.provider == _CPU else {"device_id": str(self._place.index)})
        if self._place.provider != _CPU:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        try:
            session = self._runtime.InferenceSession(_copy_graph(), options, providers=[chosen], enable_fallback=0)
        except Exception as error:
            raise GraphLoadError(f"{self.device} cannot copy memory: {shorten(error)}") from error
        self._held = session, session.io_binding()  # own what is returned
        return session._sess, self._held[1]._iobinding


def device_memory(runtime: Any, session: Any, placement: Mapping[str, int]) -> OrtMemory | None:
    """The memory of the first provider that runs nodes of a session; None: state of it lies best on the host."""
    kind, copier = _ADDRESSED.get(next(iter(placement)), ("", ""))
    if not kind:
        return None
    options = session.get_provider_options().get(PROVIDERS[next(iter(placement))], {})
    return OrtMemory(runtime, OrtPlace(kind, int(options.get("device_id", 0)), copier))


def _copy_graph() -> bytes:
    """A graph that gives its input, uint8 [n], as its output."""
    ir = onnx_file.ir
    source = ir.Value(name="source")
    node = ir.node("Identity", [source])
    target = node.outputs[0]
    target.name = "target"
    for value in (source, target):
        value.dtype, value.shape = ir.DataType.UINT8, ir.Shape(["n"])
    graph = ir.Graph([source], [target], nodes=[node], opset_imports={"": 14}, name="copy")
    return onnx_file.model_bytes(ir.Model(graph, ir_version=8), "")

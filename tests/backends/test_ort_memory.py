"""Memory of a device through the runtime, with the CPU as the device: the calls are those of any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from genai_pipeline.backends import cuda_driver
from genai_pipeline.backends import ort as ort_backend
from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.ort_memory import OrtMemory, OrtPlace, device_memory
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.backends.threads import POOL
from genai_pipeline.errors import CapacityError
from genai_pipeline.testing import GraphBuilder

PLACE = OrtPlace("cpu", 0, "cpu")


@pytest.fixture
def memory() -> OrtMemory:
    POOL.ensure(onnxruntime, None)
    return OrtMemory(onnxruntime, PLACE)


def part(buffer: Buffer, start: int, count: int) -> Buffer:
    return replace(buffer, address=buffer.address + start * buffer.dtype.itemsize, shape=(count,))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_what_is_written_is_read_and_the_rest_stays_zero(memory: OrtMemory, dtype: str) -> None:
    whole = memory.allocate((3, 5), np.dtype(dtype))
    assert whole.device == "cpu:0"
    assert not memory.read(whole).any()
    memory.write(part(whole, 4, 3), np.array([1, 2, 3], dtype))
    memory.copy(part(whole, 5, 2), part(whole, 9, 2))
    assert memory.read(whole).ravel().tolist() == [0, 0, 0, 0, 1, 2, 3, 0, 0, 2, 3, 0, 0, 0, 0]
    assert memory.read(part(whole, 0, 0)).shape == (0,)


def test_bfloat16_crosses_as_bytes(memory: OrtMemory) -> None:
    import ml_dtypes

    values = np.array([1.5, -2.0, 0.25], ml_dtypes.bfloat16)
    whole = memory.allocate((3,), values.dtype)
    memory.write(whole, values)
    assert memory.read(whole).tobytes() == values.tobytes()


def test_large_memory_is_zero_to_the_last_byte(memory: OrtMemory) -> None:
    memory.write(memory.allocate((5_000_000,), np.dtype(np.uint8)), np.full(5_000_000, 7, np.uint8))  # freed, not clean
    assert not memory.read(memory.allocate((4_999_999,), np.dtype(np.uint8))).any()


def test_more_memory_than_there_is_is_an_error_that_names_the_device(memory: OrtMemory) -> None:
    with pytest.raises(CapacityError, match=r"cpu:0 gives no .* MiB for state"):
        memory.allocate((1 << 50,), np.dtype(np.float32))


class Session:
    """A session of a provider, as far as memory is looked for."""

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {"CUDAExecutionProvider": {"device_id": "2"}}


@pytest.mark.parametrize(
    ("placement", "device"),
    [
        ({"cuda": 7, "cpu": 1}, "cuda:2"),
        ({"tensorrt": 7, "cuda": 1}, "cuda:0"),
        ({"cpu": 7}, None),
        ({"cpu": 7, "cuda": 1}, None),
        ({"dml": 7, "cpu": 1}, None),
    ],
)
def test_the_first_provider_that_runs_nodes_says_where_state_lies(placement: Any, device: str | None) -> None:
    found = device_memory(onnxruntime, Session(), placement)
    assert (None if found is None else found.device) == device


@pytest.fixture
def doubled(tmp_path: Path) -> LoadRequest:
    graph = GraphBuilder()
    x = graph.input("x", "float32", ["n"])
    graph.output("y", graph.op("Mul", x, 2.0), "float32", ["n"])
    return LoadRequest("double", str(graph.save(tmp_path / "double.onnx")), str(tmp_path))


class Spy:
    """Passes calls on to a native binding, and notes which inputs were bound."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.bound: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)

    def bind_input(self, port: str, *arguments: Any) -> None:
        self.bound.append(port)
        self.native.bind_input(port, *arguments)


def test_a_graph_with_a_device_takes_inputs_of_the_host_at_each_run(
    doubled: LoadRequest, memory: OrtMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_backend, "device_memory", lambda *_: memory)
    graph = OrtBackend().load(doubled)
    assert graph.memory is memory
    binding = graph.binding()
    spy = Spy(binding._io)
    x, y = np.array([1, 2], np.float32), memory.allocate((2,), np.dtype(np.float32))
    binding._io = spy  # type: ignore[assignment]
    binding.bind_input("x", Buffer.of(x))
    binding.bind_output("y", y)
    assert spy.bound == []
    for value in (3, 5):
        x[:] = value
        _run(binding, spy)
        assert memory.read(y).tolist() == [2 * value, 2 * value]
    assert spy.bound == ["x", "x"]
    device = memory.allocate((2,), np.dtype(np.float32))
    memory.write(device, np.array([7, 8], np.float32))
    binding.bind_input("x", device)
    _run(binding, spy)
    _run(binding, spy)
    assert memory.read(y).tolist() == [14, 16]
    assert spy.bound == ["x", "x", "x"]
    graph.close()


def _run(binding: Any, spy: Spy) -> None:
    """Run with the native binding that the spy stands for."""
    native = binding._graph.native
    binding._graph.native = _Unwrapping(native, spy)
    try:
        binding.run()
    finally:
        binding._graph.native = native


class _Unwrapping:
    def __init__(self, native: Any, spy: Spy) -> None:
        self._native, self._spy = native, spy

    def run_with_iobinding(self, _binding: Any, options: Any) -> None:
        self._native.run_with_iobinding(self._spy.native, options)


def test_a_graph_on_the_cpu_binds_an_input_once(doubled: LoadRequest) -> None:
    graph = OrtBackend().load(doubled)
    assert graph.memory is None
    assert not graph.copies_inputs


class Driver:
    """An NVIDIA driver with one device."""

    def __init__(self, fails: str = "") -> None:
        self._fails = fails
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name == "cuMemGetInfo_v2":
                arguments[0]._obj.value = 12345
            return int(name == self._fails)

        return call


@pytest.mark.parametrize(
    ("fails", "free", "last"),
    [
        ("", 12345, "cuDevicePrimaryCtxRelease_v2"),
        ("cuInit", None, "cuInit"),
        ("cuDeviceGet", None, "cuDeviceGet"),
        ("cuDevicePrimaryCtxRetain", None, "cuDevicePrimaryCtxRetain"),
        ("cuCtxPushCurrent_v2", None, "cuDevicePrimaryCtxRelease_v2"),
        ("cuMemGetInfo_v2", None, "cuDevicePrimaryCtxRelease_v2"),
    ],
)
def test_free_memory_as_the_driver_says(fails: str, free: int | None, last: str) -> None:
    driver = Driver(fails)
    assert cuda_driver.free_bytes(0, lambda name: driver) == free
    assert driver.calls[-1] == last


def test_without_a_driver_the_free_memory_is_not_known() -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    assert cuda_driver.free_bytes(0, missing) is None

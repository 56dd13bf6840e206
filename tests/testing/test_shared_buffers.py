"""Graphs that write in place give the same answers when past and present really are one buffer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from genai_pipeline.backends.threads import POOL
from genai_pipeline.testing import write_package

CAPACITY = 64
PROMPT = [7, 50, 8, 31, 31]


def decode_shared(path: Path, dtype: type, count: int) -> tuple[list[int], dict[str, np.ndarray]]:
    """Greedy tokens, with every cache bound once as both past and present; the buffers come back."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    POOL.ensure(ort, None)  # once it exists, sessions with threads of their own are refused
    options.use_per_session_threads = False
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    ports = [port.name for port in session.get_inputs()]
    pasts = [name for name in ports if name.startswith("past_key_values")]
    buffers = {name: np.full((1, 2, CAPACITY, 8), np.nan, dtype) for name in pasts}
    tokens, past = list(PROMPT), 0
    for _ in range(count):
        new, total = tokens[past:], len(tokens)
        published = {
            "input_ids": np.array([new]),
            "attention_mask": np.ones((1, total), np.int64),
            "write_indices": np.array([past]),
            "nonpad_kv_seqlen": np.array([total]),
        }
        binding = session.io_binding()
        for name in set(published) & set(ports):
            binding.bind_cpu_input(name, published[name])
        for name, buffer in buffers.items():
            place = ("cpu", 0, dtype, buffer.shape, buffer.ctypes.data)
            binding.bind_input(name, *place)
            binding.bind_output(name.replace("past_key_values", "present"), *place)
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        past = total
        tokens.append(int(binding.get_outputs()[-1].numpy()[0, -1].argmax()))
    return tokens[len(PROMPT) :], buffers


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("update", ["in_place", "scatter"])
def test_one_buffer_for_past_and_present(tmp_path, update, dtype):
    package = write_package(tmp_path, "kv", update=update, dtype=dtype)
    tokens, buffers = decode_shared(package.path / "model.onnx", np.dtype(dtype).type, 8)
    assert tokens == package.expected(PROMPT, 8)
    used = len(PROMPT) + 8 - 1
    for buffer in buffers.values():
        assert not np.isnan(buffer[:, :, :used]).any()
        assert np.isnan(buffer[:, :, used:]).all()  # nothing beyond the tokens in use was written

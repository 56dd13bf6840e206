"""A bare loop over onnxruntime, independent of the engine: it shows that graphs and twins agree on their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from genai_pipeline.backends.threads import POOL

CAPACITY = 64
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(bfloat16)": np.uint16}
BFLOAT16 = 16  # TensorProto.BFLOAT16


def open_session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    POOL.ensure(ort, None)  # once it exists, sessions with threads of their own are refused
    options.use_per_session_threads = False
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@dataclass
class BareLoop:
    """Rows of tokens over one decoder graph: state, lengths, and the values a decode loop would publish."""

    session: ort.InferenceSession
    rows: int = 1
    given: dict[str, Any] = field(default_factory=dict)  # ports fed as they are
    edit: Any = None  # called with the feeds of every run: a fault to inject
    lengths: list[int] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ports = {port.name: port for port in self.session.get_inputs()}
        self.lengths = [0] * self.rows
        self.appends = any("past" in port.shape for port in self.ports.values())
        for name, port in self.ports.items():
            if name in self.given or not name.startswith(("past_", "cross_")):
                continue
            sizes = {"batch": self.rows, "past": 0, "capacity": CAPACITY, "source": 0}
            shape = [sizes.get(dim, dim) for dim in port.shape]
            scratch = np.nan if "capacity" in port.shape and port.type != "tensor(bfloat16)" else 0
            self.state[name] = np.full(shape, scratch, TYPES[port.type])

    def run(self, new: Sequence[Sequence[int]]) -> np.ndarray:
        """Run ragged rows of new tokens; the logits of each row's last token, [rows, vocabulary]."""
        counts = [len(row) for row in new]
        tokens = np.zeros((self.rows, max(counts)), np.int64)
        for index, row in enumerate(new):
            tokens[index, : len(row)] = row
        feeds = {**self._published(tokens, counts), **self.state, **self.given}
        feeds = {name: value for name, value in feeds.items() if name in self.ports}
        if self.edit is not None:
            self.edit(feeds)
        names = [port.name for port in self.session.get_outputs()]
        values = self.session.run_with_ort_values(names, {k: self._ort_value(k, v) for k, v in feeds.items()})
        outputs = dict(zip(names, values, strict=True))
        logits = outputs.pop("logits").numpy()
        self._keep(outputs, counts)
        self.lengths = [past + count for past, count in zip(self.lengths, counts, strict=True)]
        return np.stack([logits[index, count - 1] for index, count in enumerate(counts)])

    def generate(self, prompts: Sequence[Sequence[int]], count: int, chunk: int | None = None) -> list[list[int]]:
        """Greedy tokens of every row; ``chunk`` splits the (then equally long) prompts."""
        size = chunk or max(len(prompt) for prompt in prompts)
        for start in range(0, max(len(prompt) for prompt in prompts), size):
            logits = self.run([prompt[start : start + size] for prompt in prompts])
        rows: list[list[int]] = [[] for _ in prompts]
        for step in range(count):
            for row, token in zip(rows, logits.argmax(-1).tolist(), strict=True):
                row.append(token)
            if step < count - 1:
                logits = self.run([row[-1:] for row in rows])
        return rows

    def _published(self, tokens: np.ndarray, counts: Sequence[int]) -> dict[str, np.ndarray]:
        """What a decode loop publishes, under the ports' names."""
        past, count = np.array(self.lengths), np.array(counts)
        total = past + count
        width = max(past) + max(counts) if self.appends else max(total)
        mask = np.zeros((self.rows, width), np.int64)
        for index in range(self.rows):
            start = max(past) - past[index] if self.appends else 0
            mask[index, start : start + total[index]] = 1
        positions = past[:, None] + np.arange(tokens.shape[1])[None]
        return {
            "input_ids": tokens,
            "attention_mask": mask,
            "position_ids": positions,
            "sequence_lengths": count,
            "write_indices": past,
            "nonpad_kv_seqlen": total,
            "seqlens_k": (total - 1).astype(np.int32),
            "total_sequence_length": np.array(max(total), np.int32),
        }

    def _keep(self, outputs: dict[str, ort.OrtValue], counts: Sequence[int]) -> None:
        """Turn present into past; appended rows are pushed to the right again."""
        for name, value in outputs.items():
            past = name.replace("present", "past" if "state" in name else "past_key_values", 1)
            past = past.replace("cross", "cross_key_values", 1) if name.startswith("cross") else past
            compact = self.appends and name.startswith("present") and self.rows > 1
            self.state[past] = self._compacted(value.numpy(), counts) if compact else value

    def _compacted(self, present: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Rows of [pad, past, new, pad] as [pad, past + new]."""
        longest = max(self.lengths)
        width = max(past + count for past, count in zip(self.lengths, counts, strict=True))
        result = np.full((*present.shape[:2], width, present.shape[3]), 3, present.dtype)  # padding is never zero
        for index, (past, count) in enumerate(zip(self.lengths, counts, strict=True)):
            result[index, :, width - past - count :] = present[index, :, longest - past : longest + count]
        return result

    def _ort_value(self, name: str, value: Any) -> ort.OrtValue:
        if isinstance(value, ort.OrtValue):
            return value
        if self.ports[name].type == "tensor(bfloat16)":
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(value), BFLOAT16)
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value))


@pytest.fixture
def bare_loop():
    """``bare_loop(path, rows=1, **given)``: rows of tokens over the decoder graph at ``path``."""

    def make(path: Path, rows: int = 1, edit: Any = None, **given: Any) -> BareLoop:
        return BareLoop(open_session(path), rows, given, edit)

    return make


@pytest.fixture
def run_once():
    """``run_once(path, feeds)``: all outputs of one run of a graph."""

    def run(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        session = open_session(path)
        names = [port.name for port in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))

    return run

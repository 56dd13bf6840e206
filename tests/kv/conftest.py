"""Closed-form decoders run by hand through pool and bindings: what the engine does, without the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.kv.homes import StateHome
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.testing import KINDS, KindOptions
from genai_pipeline.testing.devices import SeparateBackend, SeparateMemory
from genai_pipeline.types import numpy_dtype

GATHERED, DEVICE = "gathered ", "device "
SOURCE = (7, 12, 9)  # what the encoder heard, for decoders with a state that is written once

# past ports -> the present port, the axes of the state (None: as in the graph) and its update (None: the decoder's)
PORTS: dict[str, tuple[str, tuple[str | None, ...], str | None]] = {
    r"past_key_values\.(\d+)\.(\w+)": ("present.{}.{}", ("batch", None, "length", None), None),
    r"cross_key_values\.(\d+)\.(\w+)": ("cross.{}.{}", ("batch", None, "length", None), "fixed"),
    r"past_state\.(\d+)(\w*)": ("present_state.{}{}", ("batch", None), "replace"),
}


def states_of(signature: GraphSignature, update: Any) -> list[StatePlan]:
    """The states of a decoder from its ports; ``update`` is that of its own cache."""
    plans = []
    for pattern, (present, axes, kind) in PORTS.items():
        tensors = []
        for name, port in signature.inputs.items():
            if found := re.fullmatch(pattern, name):
                assert port.shape is not None
                shape = tuple(dim if axis is None else axis for axis, dim in zip(axes, port.shape, strict=True))
                written = present.format(*found.groups())
                tensors.append(StateTensor(int(found[1]), found[2], name, written, port.dtype, shape))
        if tensors:
            plans.append(StatePlan(kind or update, tuple(tensors)))
    return plans


class Decoder:
    """One closed-form decoder with a pool; ``run`` is one graph run over rows.

    A kind after "gathered " is served as on a backend that cannot update state in place, one after "device " as on
    one that has it in memory of its own.

    ``update`` is one of the five kinds; "fixed" has a cache of its own beside the state that is written once, of the
    kind ``own``.
    """

    def __init__(
        self,
        folder: Path,
        update: Any,
        *,
        max_rows: int = 4,
        capacity: int = 64,
        own: Any = "append",
        **options: Any,
    ) -> None:
        gathered = update.startswith(GATHERED)
        self.memory = SeparateMemory() if update.startswith(DEVICE) else None
        update = update.removeprefix(GATHERED).removeprefix(DEVICE)
        kind = {"replace": "recurrent", "fixed": "cross"}.get(update, "kv")
        if kind != "recurrent":
            options["update"] = own if kind == "cross" else update
        content = KINDS[kind].make(KindOptions(captured=kind == "cross", **options))
        path = folder / "model.onnx"
        if not path.exists():
            content.graphs["model.onnx"].save(path)
        self.update = update
        self.kind = own if kind == "cross" else update  # of the cache that grows, if there is one
        self.size = {"max_rows": max_rows, "capacity": capacity}
        self.twin: Any = content.twin
        backend: Any = OrtBackend() if self.memory is None else SeparateBackend(OrtBackend(), self.memory)
        self.graph = backend.load(LoadRequest("decoder", str(path), str(folder)))
        self.home = StateHome(in_place=frozenset()) if gathered else StateHome.of(self.graph)
        self.states = states_of(self.graph.signature, options.get("update"))
        self.feeds: dict[str, str] = next(stage for stage in content.stages if "body" in stage)["body"][0]["inputs"]
        self.rows: dict[int, list[int]] = {}  # row -> its tokens
        self.sources: dict[int, tuple[int, ...]] = {}
        self.restart()

    def restart(self) -> None:
        """Begin with no rows and nothing in memory."""
        self.pool = KvPool({"decoder": self.states}, homes={"decoder": self.home}, **self.size)
        self.binding = self.graph.binding()
        self.rows.clear()
        self.sources.clear()

    def open(self, source: tuple[int, ...] = SOURCE) -> int:
        row = self.pool.open()
        assert row is not None
        self.rows[row], self.sources[row] = [], source
        return row

    def move(self, source: int, target: int) -> None:
        self.pool.move(source, target)
        self.rows[target], self.sources[target] = self.rows.pop(source), self.sources.pop(source)

    def release(self, row: int) -> None:
        self.pool.release(row)
        del self.rows[row], self.sources[row]

    def truncate(self, row: int, length: int) -> None:
        self.pool.truncate(row, length)
        del self.rows[row][length:]

    def run(self, new: dict[int, Sequence[int]], keep: dict[int, int] | None = None) -> NDArray[Any]:
        """Run new tokens of some rows together; commit all of them, or the first ``keep[row]``. Logits [b, S, V]."""
        rows = list(new)
        counts = [len(tokens) for tokens in new.values()]
        starts = [len(self.rows[row]) for row in rows]
        for row, start, count in zip(rows, starts, counts, strict=True):
            assert self.pool.reserve(row, start + count)
        width = self.pool.bind("decoder", self.binding, rows, starts, counts)
        values = self.loop_values(starts, list(new.values()), width)
        if self.update == "fixed":
            values["source"] = np.array([self.sources[row] for row in rows])[:, :, None]
        held = []
        for port, value in self.feeds.items():
            declared = self.graph.signature.inputs[port]
            array = np.ascontiguousarray(values[value], numpy_dtype(declared.dtype))
            held.append(array)
            self.binding.bind_input(port, Buffer.of(array))
        self.binding.bind_output("logits", None)
        self.binding.run()
        kept = [count if keep is None else keep[row] for row, count in zip(rows, counts, strict=True)]
        self.pool.commit(rows, [start + count for start, count in zip(starts, kept, strict=True)])
        for row, count in zip(rows, kept, strict=True):
            self.rows[row] += list(new[row])[:count]
        return self.binding.output("logits").copy()

    def loop_values(self, starts: list[int], new: list[Sequence[int]], width: int) -> dict[str, Any]:
        counts = np.array([len(tokens) for tokens in new])
        size = int(counts.max())
        begin = np.array(starts)
        tokens = np.zeros((len(new), size), np.int64)
        for i, row in enumerate(new):
            tokens[i, : len(row)] = row
        left = self.pool.pad_side == "left"
        total = width + size if left else int((begin + counts).max())
        first = width - begin if left else np.zeros_like(begin)
        columns = np.arange(total)
        last = first + begin + counts
        return {
            "loop.tokens": tokens,
            "loop.attention_mask": (columns >= first[:, None]) & (columns < last[:, None]),
            "loop.position_ids": begin[:, None] + np.arange(size),
            "loop.last_index": begin + counts - 1,
            "loop.max_length": np.array(total),
            "loop.write_indices": begin,
            "loop.total_length": begin + counts,
            "loop.sequence_lengths": counts,
        }

    def choose(self, logits: NDArray[Any], index: int, count: int) -> int:
        return int(logits[index, count - 1].argmax())

    def generate(self, rows: Sequence[int], last: dict[int, int], steps: int) -> dict[int, list[int]]:
        """Greedy decode steps of rows together; ``last`` is each row's token that has not run yet."""
        out: dict[int, list[int]] = {row: [] for row in rows}
        for _ in range(steps):
            logits = self.run({row: [last[row]] for row in rows})
            for i, row in enumerate(rows):
                last[row] = self.choose(logits, i, 1)
                out[row].append(last[row])
        return out

    def prefill(self, row: int, prompt: Sequence[int], chunk: int = 0) -> int:
        """Run a prompt alone, in chunks, and choose the first token."""
        size = chunk or len(prompt)
        parts = [prompt[i : i + size] for i in range(0, len(prompt), size)]
        for part in parts:
            logits = self.run({row: part})
        return self.choose(logits, 0, len(parts[-1]))

    def alone(self, prompt: Sequence[int], count: int, source: tuple[int, ...] = SOURCE) -> list[int]:
        """The first tokens after a prompt, without any graph."""
        if self.update == "fixed":
            return list(replace(self.twin, start=tuple(prompt)).expected(source, count))
        return list(self.twin.expected(prompt, count))


@pytest.fixture
def decoder(tmp_path: Path) -> Callable[..., Decoder]:
    """Makes decoders of one update kind."""

    def make(update: str, **options: Any) -> Decoder:
        return Decoder(tmp_path, update, **options)

    return make

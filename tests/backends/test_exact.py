"""The same answers on every backend, for every kind of state, however requests come to run: the arithmetic's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.kv import pool as pool_module
from genai_pipeline.testing import TinyPackage, write_package

TEXTS = ("a", "bcd", "hij", "k", "l" * 17, "mn" * 20)
LOADS: dict[str, dict[str, Any]] = {
    "ort": {"backend": "ort"},
    "plugin": {"backend": "ort", "providers": ["plugin:nxrt-ep-cpu", "cpu"]},
    "nxrt": {"backend": "nxrt"},
    "emulated": {"backend": "emulated"},
    "reference": {"backend": "reference"},
}
KINDS = ("append", "in_place", "scatter", "replace", "unpadded", "fixed")
REFUSED = {("reference", "in_place"), ("reference", "replace"), ("reference", "unpadded")}  # for operators it lacks


def listening(metadata: dict[str, Any]) -> None:
    """Encoder and decoder in one loop: what the decoder hears is its own prompt, and its first run keeps that."""
    encode, loop = metadata["stages"]
    del encode["id"]
    loop["prompt"] = "prompt.tokens"
    loop["body"].insert(0, encode)
    metadata["stages"] = [loop]


def write(folder: Path, kind: str) -> TinyPackage:
    if kind == "fixed":
        return write_package(folder, "cross", update="append", captured=True, edit=listening)
    if kind in ("replace", "unpadded"):
        return write_package(folder, "recurrent", padded=kind == "replace")
    return write_package(folder, update=kind)


class Tiny:
    """A package on a backend, and what it has to answer."""

    def __init__(self, folder: Path, backend: str, kind: str) -> None:
        self._kind, self._backend = kind, backend
        self._package = write(folder, kind)
        self.has_tokens = kind not in ("replace", "unpadded")

    def load(self, **options: Any) -> gp.Pipeline:
        return gp.load(self._package.path, **LOADS[self._backend], **options)

    def encode(self, text: str) -> list[int]:
        return list(self._package.vocabulary.encode(text))

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        if self._kind == "fixed":
            twin: Any = self._package.twin
            return list(replace(twin, start=tuple(prompt)).expected(prompt, count))
        return list(self._package.expected(prompt, count))

    def together(self, pipe: gp.Pipeline, texts: Sequence[str], count: int) -> None:
        """Requests that are all there before the first one runs each get their own answer."""
        prompts, gate = [self.encode(text) for text in texts], threading.Event()
        pipe._assembly.engine._post(lambda: _wait(gate))
        streams = [pipe.stream(tokens=prompt, **_greedy(count)) for prompt in prompts]
        gate.set()
        for stream, prompt in zip(streams, prompts, strict=True):
            assert [event.token for event in stream if event.token is not None] == self.expected(prompt, count)


def _wait(gate: threading.Event) -> None:
    gate.wait()


def _greedy(count: int) -> dict[str, Any]:
    return {"temperature": 0, "max_new_tokens": count, "ignore_eos": True}


def batched(tiny: Tiny, patch: pytest.MonkeyPatch) -> None:
    with tiny.load(max_batch=4) as pipe:
        tiny.together(pipe, TEXTS, 7)
        assert max(int(rows) for rows in pipe.stats()["rows"]["decode"]) > 1


def chunked(tiny: Tiny, patch: pytest.MonkeyPatch) -> None:
    for size in (3, 16):
        with tiny.load(max_batch=2, prefill_chunk=size) as pipe:
            tiny.together(pipe, TEXTS, 5)


def preempted(tiny: Tiny, patch: pytest.MonkeyPatch) -> None:
    # 9 pages for sequences of 3 to 5 each: some have to leave. Otherwise state without tokens takes no pages, and that
    # on a device as many as there are.
    patch.setattr(pool_module, "_sizes", lambda page, row, max_rows, capacity, budget: (max_rows, 9))
    patch.setattr(pool_module, "pays_in_full", lambda *_, **__: False)
    with tiny.load(max_batch=6) as pipe:
        tiny.together(pipe, TEXTS, 40)
        assert sum(pipe.stats()["preemptions"].values()) > 0


def forked(tiny: Tiny, patch: pytest.MonkeyPatch) -> None:
    prompt = tiny.encode("y" * 40)
    with tiny.load(max_batch=4, prefix_cache=False) as pipe:
        result = pipe.generate(tokens=prompt, n=3, **_greedy(6))
    assert [list(choice.tokens) for choice in result.choices] == [tiny.expected(prompt, 6)] * 3


def from_the_cache(tiny: Tiny, patch: pytest.MonkeyPatch) -> None:
    beginning = "abcdefgh" * 5
    with tiny.load(max_batch=2) as pipe:
        for text in (beginning, beginning, beginning + "ij", beginning):
            tiny.together(pipe, [text], 5)
        assert bool(pipe.stats()["prefix"]["hits"]) == tiny.has_tokens  # one piece is known at its own length only


Manner = Callable[[Tiny, pytest.MonkeyPatch], None]


@pytest.mark.parametrize("manner", [batched, chunked, preempted, forked, from_the_cache])
@pytest.mark.parametrize(
    ("backend", "kind"), [(backend, kind) for backend in LOADS for kind in KINDS if (backend, kind) not in REFUSED]
)
@pytest.mark.usefixtures("reference", "emulated")
def test_answers_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, kind: str, manner: Manner
) -> None:
    manner(Tiny(tmp_path, backend, kind), monkeypatch)

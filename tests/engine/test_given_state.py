"""State that starts as what another component gave: rows join late, share runs, and answer as if they were alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.kv import pool as pool_module
from genai_pipeline.testing import write_package
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.graphs.decoder import logits_port, token_port

SAME_LENGTH = ["abc", "bcd", "cde", "xyz", "abc"]
OTHERS = ["a", "efghijk", "l" * 17, "mn" * 20]
ASK = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}


def tokens_of(stream: Any) -> list[int]:
    return [event.token for event in stream if event.token is not None]


def encoded(package: Any, texts: Sequence[str]) -> list[list[int]]:
    return [list(package.vocabulary.encode(text)) for text in texts]


@pytest.mark.parametrize("update", ["append", "in_place", "scatter"])
def test_sources_in_any_company(open_tiny: Any, update: str) -> None:
    pipe, package = open_tiny("cross", update=update, load={"max_batch": 6})
    prompts = encoded(package, [*SAME_LENGTH, *OTHERS])
    streams = [pipe.stream(tokens=prompt, **ASK) for prompt in prompts]
    for stream, prompt in zip(streams, prompts, strict=True):
        assert tokens_of(stream) == package.expected(prompt, 12)


@pytest.mark.parametrize("update", ["append", "in_place"])
def test_rows_that_join_late_share_the_runs(open_tiny: Any, update: str) -> None:
    pipe, package = open_tiny("cross", update=update)
    prompts = encoded(package, SAME_LENGTH[:3])
    streams = []
    for prompt in prompts:  # each while those before it are under way
        streams.append(pipe.stream(tokens=prompt, **{**ASK, "max_new_tokens": 120}))
        next(streams[-1])
    for stream, prompt in zip(streams, prompts, strict=True):
        assert tokens_of(stream) == package.expected(prompt, 120)[1:]
    rows = pipe.stats()["rows"]["decode"]
    assert "3" in rows


def test_rows_of_one_run_have_states_of_one_shape(open_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[set[int]] = []
    run = DecodeLoop.run

    def watched(self: DecodeLoop, kind: str, batch: Any) -> Any:
        sizes.append({len(sequence.request.values["prompt.tokens"]) for sequence in batch.sequences})
        return run(self, kind, batch)

    monkeypatch.setattr(DecodeLoop, "run", watched)
    pipe, package = open_tiny("cross", update="append")
    prompts = encoded(package, [*SAME_LENGTH, *OTHERS])
    for stream in [pipe.stream(tokens=prompt, **ASK) for prompt in prompts]:
        list(stream)
    assert all(len(lengths) == 1 for lengths in sizes)


@pytest.mark.parametrize("update", ["append", "in_place"])
def test_choices_of_one_request(open_tiny: Any, update: str) -> None:
    pipe, package = open_tiny("cross", update=update)
    (prompt,) = encoded(package, ["efghijk"])
    result = pipe.generate(tokens=prompt, n=3, **ASK)
    assert [list(choice.tokens) for choice in result.choices] == [package.expected(prompt, 12)] * 3


@pytest.mark.parametrize("copy", [1, 1 << 60])  # nanoseconds: swapping is the cheaper preemption, or computing again is
@pytest.mark.parametrize("update", ["append", "in_place"])
def test_preempted_sequences_go_on(open_tiny: Any, update: str, copy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_sizes", lambda page, row, max_rows, capacity, budget: (max_rows, 17))
    pipe, package = open_tiny("cross", update=update, load={"max_batch": 6})
    scheduler = pipe._assembly.engine._scheduler
    scheduler.costs = type(scheduler.costs)(copy=copy)
    prompts = encoded(package, SAME_LENGTH)
    streams = [pipe.stream(tokens=prompt, **{**ASK, "max_new_tokens": 120}) for prompt in prompts]
    for stream, prompt in zip(streams, prompts, strict=True):
        assert tokens_of(stream) == package.expected(prompt, 120)
    assert sum(pipe.stats()["preemptions"].values()) > 0


def test_prefixes_are_not_kept(open_tiny: Any) -> None:
    pipe, package = open_tiny("cross", update="append")
    for prompt in encoded(package, ["abc", "abd", "abc"]):
        result = pipe.generate(tokens=prompt, **{**ASK, "max_new_tokens": 40})
        assert list(result.tokens) == package.expected(prompt, 40)
    assert pipe._assembly.parts["generate"].store.usage().inserted_pages == 0


def test_the_memory_of_given_states_bounds_the_rows(open_tiny: Any) -> None:
    def fixed(metadata: dict[str, Any]) -> None:
        shape = ["batch", 2, "length", 8]
        metadata["components"]["decoder"]["kv"][1]["shape"] = shape

    pipe, _ = open_tiny("cross", update="append", edit=fixed)
    (state,) = [s for s in pipe.plan.components["decoder"].states if s.update == "fixed"]
    known = [
        pool_module.bytes_per_row([type(state)("fixed", tuple(_with_length(t, length) for t in state.tensors))])
        for length in (0, 100)
    ]
    assert known[0] == 0
    assert known[1] == 2 * 100 * sum(tensor.bytes_per_token for tensor in state.tensors)


def test_states_of_any_length_count_when_they_are_there(open_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_sizes", lambda page, row, max_rows, capacity, budget: (max_rows, 17))
    pipe, package = open_tiny("cross", update="append", load={"max_batch": 6})
    page, rows = pipe._assembly.pools["generate"].page_bytes, []
    run = DecodeLoop.run

    def watched(self: DecodeLoop, kind: str, batch: Any) -> Any:
        rows.append(batch.size)
        return run(self, kind, batch)

    monkeypatch.setattr(DecodeLoop, "run", watched)
    (source,) = encoded(package, ["m" * 130])
    taken = 2 * len(source) * 2 * 2 * 2 * 8 * 4  # layers, parts, heads, their size, bytes
    extra = -(-taken // page)
    assert extra == 9
    streams = [pipe.stream(tokens=source, **ASK) for _ in range(3)]
    for stream in streams:
        assert tokens_of(stream) == package.expected(source, 12)
    assert set(rows) == {1}  # two of them would take more pages than there are
    result = pipe.generate(tokens=source, temperature=0, ignore_eos=True)
    assert len(result.tokens) == (17 - extra) * 16 - 1
    with pytest.raises(gp.errors.CapacityError):
        pipe.generate(tokens=source, temperature=0, max_new_tokens=140)


def _with_length(tensor: Any, length: int) -> Any:
    from dataclasses import replace

    return replace(tensor, length=length)


MODULUS = 97


@dataclass(frozen=True)
class Spelling:
    """hidden starts as the sum of the source's ids; a token makes it (3 * hidden + token + 1) mod 97, and the next one
    is first + hidden mod (vocabulary - first)."""

    vocabulary: int
    first: int
    start: int

    def encoder(self) -> GraphBuilder:
        b = GraphBuilder("encoder")
        ids = b.cast(token_port(b), "float32")
        b.output("hidden", b.op("Mod", b.op("ReduceSum", ids, [1], keepdims=1), float(MODULUS), fmod=1), *_HIDDEN)
        return b

    def decoder(self) -> GraphBuilder:
        b = GraphBuilder("decoder")
        token = b.input("token", "int64", ["batch", 1])
        hidden = b.input("hidden", *_HIDDEN)
        value = b.op("Add", b.op("Mul", b.cast(hidden, "int64"), 3), b.op("Add", token, 1))
        after = b.op("Mod", value, MODULUS)
        b.output("next_hidden", b.cast(after, "float32"), *_HIDDEN)
        answer = b.op("Add", b.op("Mod", after, self.vocabulary - self.first), self.first)
        logits_port(b, answer, self.vocabulary, 16.0, "float32")
        return b

    def expected(self, source: Sequence[int], count: int) -> list[int]:
        hidden, tokens = sum(source) % MODULUS, [self.start]
        for _ in range(count):
            hidden = (3 * hidden + tokens[-1] + 1) % MODULUS
            tokens.append(self.first + hidden % (self.vocabulary - self.first))
        return tokens[1:]


_HIDDEN = ("float32", ["batch", 1])


@pytest.fixture(params=["carry", "state"])
def speller(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A pipeline whose decoder goes on from what the encoder gave: carried by the loop, or as state of the decoder."""
    rules: list[Spelling] = []

    def edit(metadata: dict[str, Any]) -> None:
        loop = metadata["stages"][0]
        run = loop["body"][0]
        run["inputs"] = {"token": "loop.tokens"}
        decoder = {"model": "spell.onnx", "span": {"first": 1, "later": 1}}
        loop["prompt"] = {"template": ["<s>"]}
        if request.param == "carry":
            run["inputs"]["hidden"] = "loop.hidden"
            run["outputs"]["next_hidden"] = "after"
            loop["carry"] = {"hidden": {"initial": "meaning", "next": "after"}}
        else:
            decoder["kv"] = {"update": "replace", "from": "encoder", "past": "hidden", "present": "next_hidden"}
        metadata["components"] = {"encoder": {"model": "encoder.onnx"}, "decoder": decoder}
        listen = {"run": "encoder", "inputs": {"input_ids": "prompt.tokens"}, "outputs": {"hidden": "meaning"}}
        metadata["stages"].insert(0, listen)

    package = write_package(tmp_path / "p", "table", edit=edit)
    vocabulary = package.vocabulary
    rules.append(Spelling(len(vocabulary), vocabulary.specials, vocabulary.id("<s>")))
    rules[0].encoder().save(package.path / "encoder.onnx")
    rules[0].decoder().save(package.path / "spell.onnx")
    with gp.load(package.path) as pipe:
        yield pipe, package, rules[0]


def test_a_decoder_goes_on_from_the_encoders_state(speller: Any) -> None:
    pipe, package, rule = speller
    prompts = encoded(package, [*SAME_LENGTH, *OTHERS])
    streams = [pipe.stream(tokens=prompt, **ASK) for prompt in prompts]
    for stream, prompt in zip(streams, prompts, strict=True):
        assert tokens_of(stream) == rule.expected(prompt, 12)
    assert any(int(size) > 1 for size in pipe.stats()["rows"]["decode"])


def test_its_choices_and_beams(speller: Any) -> None:
    pipe, package, rule = speller
    (prompt,) = encoded(package, ["efghijk"])
    result = pipe.generate(tokens=prompt, n=3, **ASK)
    assert [list(choice.tokens) for choice in result.choices] == [rule.expected(prompt, 12)] * 3


def test_it_cannot_speculate(speller: Any) -> None:
    _, package, _ = speller
    with pytest.raises(gp.errors.OptionError, match="cannot speculate"):
        gp.load(package.path, draft="lookup")


def test_rows_that_fail_leave_what_is_carried(speller: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that fails runs again row by row, from what each row had before."""
    pipe, package, rule = speller
    run, failed = DecodeLoop.run, threading.Event()

    def failing(self: DecodeLoop, kind: str, batch: Any) -> Any:
        logits = run(self, kind, batch)
        if batch.size > 1:
            failed.set()
            raise gp.errors.GraphRunError("not together")
        return logits

    monkeypatch.setattr(DecodeLoop, "run", failing)
    prompts = encoded(package, SAME_LENGTH)
    streams = [pipe.stream(tokens=prompt, **ASK) for prompt in prompts]
    for stream, prompt in zip(streams, prompts, strict=True):
        assert tokens_of(stream) == rule.expected(prompt, 12)
    assert failed.is_set()

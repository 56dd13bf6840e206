"""Components that take a prompt whole in their first run and single tokens later (``span``): the same tokens, however
requests come together."""

from __future__ import annotations

from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.errors import OptionError, PackageInvalidError
from genai_pipeline.scheduler.budget import Costs
from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.testing.graphs.branches import SWITCH, merged_graph
from genai_pipeline.testing.graphs.caches import AppendCache, Geometry
from genai_pipeline.testing.graphs.decoder import Decoder
from genai_pipeline.testing.graphs.rules import SumRule

TEXTS = ["a", "bcd", "efghijk", "l" * 17, "mn" * 20, "op", "q" * 33, "rst"]
PAGE_BYTES = 16 * 2 * 2 * 2 * 8 * 4 * 2  # tokens, layers, parts, heads, head_dim, float32, two buffers
WHOLE = {"first": "whole", "later": 1}


def whole_first(metadata: dict[str, Any], span: dict[str, Any]) -> None:
    """The decoder's switch, and what its runs may take."""
    metadata["components"]["decoder"]["span"] = span
    metadata["generation"] = {"defaults": {"num_beams": 1}}
    metadata["stages"][0]["body"][0]["inputs"][SWITCH] = "not loop.first"


@pytest.fixture
def merged(tmp_path: Any) -> TinyPackage:
    """A decoder of two branches: first runs are right whole, later ones with one token only."""
    package = write_package(tmp_path / "merged", "kv", update="append", edit=lambda data: whole_first(data, WHOLE))
    assert isinstance(package.twin, SumRule)
    merged_graph(Decoder(package.twin, AppendCache(), Geometry())).save(package.path / "model.onnx")
    return package


def together(pipe: gp.Pipeline, prompts: list[list[int]], **options: Any) -> list[Any]:
    """Tokens of requests that are all submitted before the first is read."""
    streams = [pipe.stream(tokens=prompt, temperature=0, **options) for prompt in prompts]
    return [[event.token for event in stream if event.token is not None] for stream in streams]


@pytest.mark.parametrize("chunk", [3, 16, 2048])
@pytest.mark.parametrize("max_batch", [1, 3, 8])
def test_whatever_the_chunks_and_the_company(merged: TinyPackage, chunk: int, max_batch: int) -> None:
    prompts = [merged.vocabulary.encode(text) for text in TEXTS]
    with gp.load(merged.path, prefill_chunk=chunk, max_batch=max_batch) as pipe:
        assert together(pipe, prompts, max_new_tokens=9) == [merged.answer(prompt, 9) for prompt in prompts]


def test_a_prompt_is_one_run(merged: TinyPackage) -> None:
    prompt = merged.vocabulary.encode("q" * 100)
    with gp.load(merged.path, prefill_chunk=16) as pipe:
        for _ in range(2):  # what was computed before is computed again: a rest would be no first run
            result = pipe.generate(tokens=prompt, temperature=0, max_new_tokens=5)
            assert list(result.tokens) == merged.answer(prompt, 5)
            assert result.usage.cached_tokens == 0
        stats = pipe.stats()
    assert stats["runs"]["prefill"] == 2
    assert stats["tokens"]["prompt"] == 200


@pytest.mark.parametrize("options", [{"n": 3, "temperature": 0}, {"num_beams": 3}], ids=["forks", "beams"])
def test_answers_to_one_prompt(merged: TinyPackage, options: dict[str, Any]) -> None:
    prompt = merged.vocabulary.encode("fork " * 9)
    expected = merged.answer(prompt, 6)
    with gp.load(merged.path, prefill_chunk=8, max_batch=4) as pipe:
        found = pipe.generate(tokens=prompt, max_new_tokens=6, **options)
    assert [list(choice.tokens) for choice in found.choices] == [expected] * options.get("n", 1)


@pytest.mark.parametrize("swaps", [True, False])
def test_preempted_ones_come_back(merged: TinyPackage, monkeypatch: pytest.MonkeyPatch, swaps: bool) -> None:
    monkeypatch.setattr(Costs, "swaps", property(lambda self: swaps))
    preempt, preempted = DecodeLoop.preempt, []

    def traced(self: DecodeLoop, sequence: Any, *, swap: bool) -> bool:
        preempted.append(sequence.id)
        return preempt(self, sequence, swap=swap)

    monkeypatch.setattr(DecodeLoop, "preempt", traced)
    prompts = [merged.vocabulary.encode(text) for text in TEXTS[:6]]
    expected = [merged.expected(prompt, 120) for prompt in prompts]
    with gp.load(merged.path, prefill_chunk=16, max_batch=6, memory=17 * PAGE_BYTES * 4 // 3) as pipe:
        assert together(pipe, prompts, max_new_tokens=120, ignore_eos=True) == expected
    assert preempted


def test_turns_of_a_session(merged: TinyPackage) -> None:
    with gp.load(merged.path, prefill_chunk=8) as pipe:
        session = pipe.session()
        said: list[tuple[str, str]] = []
        for text in ("hello", "again", "and again"):
            said.append(("user", text))
            found = session.chat(text, temperature=0, max_new_tokens=4)
            assert list(found.tokens) == merged.answer(merged.vocabulary.chat_prompt(*said), 4)
            said.append(("assistant", found.text))


def test_tokens_that_a_grammar_forces_go_one_by_one(merged: TinyPackage) -> None:
    with gp.load(merged.path) as pipe:
        found = pipe.generate("say it", choices=["abcdefgh"], temperature=0, max_new_tokens=20)
    assert found.text == "abcdefgh"


def test_nothing_is_drafted(merged: TinyPackage) -> None:
    with pytest.raises(OptionError, match="limits the tokens of a run"):
        gp.load(merged.path, draft="lookup")


def test_components_of_one_loop_agree(tmp_path: Any) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["components"]["decoder"]["span"] = WHOLE
        metadata["components"]["embed"]["span"] = {"first": 1, "later": 1}

    package = write_package(tmp_path / "p", "embeds", update="append", edit=edit)
    assert [problem.code for problem in gp.validate(package.path)[1]] == ["capability.missing"]
    with pytest.raises(PackageInvalidError, match=r"span\.mixed"):
        gp.load(package.path)

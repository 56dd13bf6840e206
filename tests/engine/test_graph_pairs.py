"""Components of two graphs (``model: {first, later}``): the tokens of the whole decoder, however requests come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.ort_graph import OrtGraph
from genai_pipeline.backends.protocol import LoadRequest
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.lane import Lane
from genai_pipeline.errors import GraphLoadError
from genai_pipeline.graph.compile import compile_package
from genai_pipeline.graph.render import to_text
from genai_pipeline.scheduler.budget import Costs
from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.graphs.branches import first_graph, later_graph
from genai_pipeline.testing.graphs.caches import AppendCache, Geometry
from genai_pipeline.testing.graphs.decoder import Decoder
from genai_pipeline.testing.graphs.rules import SumRule

TEXTS = ["a", "bcd", "efghijk", "l" * 17, "mn" * 20, "op", "q" * 33, "rst"]
PAGE_BYTES = 16 * 2 * 2 * 2 * 8 * 4 * 2  # tokens, layers, parts, heads, head_dim, float32, two buffers
WHOLE = {"first": "whole", "later": 1}
Make = Callable[..., TinyPackage]


@pytest.fixture
def pair(tmp_path: Path) -> Make:
    """A decoder in two files: ``traced`` ones take one token on a past, others any number."""

    def make(kind: str = "kv", *, traced: bool = True, edit: Any = None, **options: Any) -> TinyPackage:
        def split(metadata: dict[str, Any]) -> None:
            decoder = metadata["components"]["decoder"]
            decoder["model"] = {"first": "first.onnx", "later": "later.onnx"}
            metadata["generation"] = {"defaults": {"num_beams": 1}}
            if traced:
                decoder["span"] = WHOLE
            if edit is not None:
                edit(metadata)

        package = write_package(tmp_path / "pair", kind, edit=split, **{"update": "append", **options})
        assert isinstance(package.twin, SumRule)
        decoder = Decoder(package.twin, AppendCache(), Geometry())
        first_graph(decoder).save(package.path / "first.onnx")
        (later_graph if traced else Decoder.build)(decoder).save(package.path / "later.onnx")
        (package.path / "model.onnx").unlink()
        return package

    return make


def together(pipe: gp.Pipeline, prompts: list[list[int]], **options: Any) -> list[Any]:
    """Tokens of requests that are all submitted before the first is read."""
    streams = [pipe.stream(tokens=prompt, temperature=0, **options) for prompt in prompts]
    return [[event.token for event in stream if event.token is not None] for stream in streams]


def test_the_first_graph_is_closed_when_the_later_one_cannot_be_loaded(
    pair: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    close = OrtGraph.close

    def watched(graph: OrtGraph) -> None:
        closed.append(graph.component)
        close(graph)

    monkeypatch.setattr(OrtGraph, "close", watched)
    load = OrtBackend.load

    def refuse(backend: OrtBackend, request: LoadRequest) -> OrtGraph:
        if request.path.endswith("later.onnx"):
            raise GraphLoadError("there is no such kernel")
        return load(backend, request)

    monkeypatch.setattr(OrtBackend, "load", refuse)
    with pytest.raises(GraphLoadError, match="no such kernel"):
        gp.load(pair().path)
    assert closed == ["decoder"]


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize(("chunk", "max_batch"), [(3, 8), (16, 3), (2048, 1)])
def test_whatever_the_chunks_and_the_company(pair: Make, traced: bool, chunk: int, max_batch: int) -> None:
    package = pair(traced=traced)
    assert gp.validate(package.path)[1] == ()
    prompts = [package.vocabulary.encode(text) for text in TEXTS]
    with gp.load(package.path, prefill_chunk=chunk, max_batch=max_batch) as pipe:
        for _ in range(2):  # the second time on what the first has left
            assert together(pipe, prompts, max_new_tokens=9) == [package.answer(prompt, 9) for prompt in prompts]


def test_a_first_run_captures_what_later_ones_read(pair: Make) -> None:
    package = pair("cross", captured=True)
    assert gp.validate(package.path)[1] == ()
    prompts = [package.vocabulary.encode(text) for text in TEXTS]
    with gp.load(package.path, max_batch=4) as pipe:
        assert together(pipe, prompts, max_new_tokens=9) == [package.answer(prompt, 9) for prompt in prompts]


@pytest.mark.parametrize("options", [{"n": 3, "temperature": 0}, {"num_beams": 3}], ids=["forks", "beams"])
@pytest.mark.parametrize("traced", [True, False])
def test_answers_to_one_prompt(pair: Make, traced: bool, options: dict[str, Any]) -> None:
    package = pair(traced=traced)
    prompt = package.vocabulary.encode("fork " * 9)
    with gp.load(package.path, prefill_chunk=8, max_batch=4) as pipe:
        found = pipe.generate(tokens=prompt, max_new_tokens=6, **options)
    assert [list(choice.tokens) for choice in found.choices] == [package.answer(prompt, 6)] * options.get("n", 1)


@pytest.mark.parametrize("swaps", [True, False])
@pytest.mark.parametrize("traced", [True, False])
def test_preempted_ones_come_back(pair: Make, monkeypatch: pytest.MonkeyPatch, traced: bool, swaps: bool) -> None:
    monkeypatch.setattr(Costs, "swaps", property(lambda self: swaps))
    preempt, preempted = DecodeLoop.preempt, []

    def counted(self: DecodeLoop, sequence: Any, *, swap: bool) -> bool:
        preempted.append(sequence.id)
        return preempt(self, sequence, swap=swap)

    monkeypatch.setattr(DecodeLoop, "preempt", counted)
    package = pair(traced=traced)
    prompts = [package.vocabulary.encode(text) for text in TEXTS[:6]]
    expected = [package.expected(prompt, 120) for prompt in prompts]
    with gp.load(package.path, prefill_chunk=16, max_batch=6, memory=17 * PAGE_BYTES * 4 // 3) as pipe:
        assert together(pipe, prompts, max_new_tokens=120, ignore_eos=True) == expected
    assert preempted


def test_rows_of_later_runs_share_them_whatever_their_step(pair: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    package, sizes, run = pair(), [], Lane.run

    def watched(self: Lane, batch: Any) -> Any:
        sizes.append(batch.size)
        return run(self, batch)

    monkeypatch.setattr(Lane, "run", watched)
    prompts = [package.vocabulary.encode(text) for text in TEXTS[:6]]
    with gp.load(package.path, max_batch=6) as pipe:
        together(pipe, prompts, max_new_tokens=100, ignore_eos=True)
    assert max(sizes) == 6


def test_a_port_that_only_the_later_graph_has(pair: Make) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["body"][0]["inputs"]["num_logits_to_keep"] = 0

    package = pair(edit=edit)
    assert isinstance(package.twin, SumRule)
    later = GraphBuilder("later")
    Decoder(package.twin, AppendCache(), Geometry()).write(later)
    later.input("num_logits_to_keep", "int64", [])
    later.save(package.path / "later.onnx")
    assert gp.validate(package.path)[1] == ()
    prompt = package.vocabulary.encode("hello")
    with gp.load(package.path) as pipe:
        assert list(pipe.generate(tokens=prompt, temperature=0, max_new_tokens=6).tokens) == package.answer(prompt, 6)


def test_the_plan_names_both_graphs(pair: Make) -> None:
    spec, _ = gp.validate(pair().path)
    assert spec is not None
    plan, _ = compile_package(spec)
    assert plan is not None
    assert "component decoder: first.onnx, later later.onnx\n" in to_text(plan)


def test_drafts_are_verified_by_the_later_graph(pair: Make) -> None:
    package = pair(traced=False)
    prompt = package.vocabulary.encode("abcabcabcabc")
    with gp.load(package.path, draft="lookup") as pipe:
        found = pipe.generate(tokens=prompt, temperature=0, max_new_tokens=40, ignore_eos=True)
    assert list(found.tokens) == package.expected(prompt, 40)


def test_both_graphs_are_told_of(pair: Make) -> None:
    with gp.load(pair().path) as pipe:
        (first, later) = pipe._assembly.placement
        seconds = pipe.stats()["graph_seconds"]
    assert (first.model, later.model) == ("first.onnx", "later.onnx")
    assert sum(first.nodes.values()) > 0
    assert seconds.keys() == {"decoder"}


@pytest.mark.parametrize("update", ["in_place", "scatter"])
def test_a_buffer_that_the_first_graph_lacks_is_refused(pair: Make, update: str) -> None:
    def shared(metadata: dict[str, Any]) -> None:
        metadata["components"]["decoder"]["kv"]["update"] = update

    problems = gp.validate(pair(edit=shared).path)[1]
    assert "kv.pair" in {problem.code for problem in problems}
    (message,) = [problem.message for problem in problems if problem.code == "kv.pair"]
    assert "first.onnx" in message

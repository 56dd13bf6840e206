"""Drafts of decoders in the forms that exporters split them into: they leave nothing open and run at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

import genai_pipeline as gp
from genai_pipeline.importers.drafting import write_draft
from genai_pipeline.metadata.load import METADATA_FILE
from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.testing.graphs.branches import first_graph, later_graph, merged_graph
from genai_pipeline.testing.graphs.caches import Geometry
from genai_pipeline.testing.graphs.decoder import Decoder
from genai_pipeline.testing.graphs.rules import SumRule
from genai_pipeline.testing.kinds import KindOptions, make_cache

TEXTS = ("a", "hello", "some more of it " * 4)


def without_decoder(folder: Path, kind: str, update: Any = "append") -> TinyPackage:
    """A folder of unknown origin whose decoder is to be written, and what it answers."""
    options: dict[str, Any] = {"captured": True} if kind == "cross" else {}
    package = write_package(folder, kind, update=update, **options)
    for name in (METADATA_FILE, "model.onnx"):
        (package.path / name).unlink()
    start = package.vocabulary.id("<s>")
    config = {"max_position_embeddings": 200, "decoder_start_token_id": start, "eos_token_id": list(package.end_ids)}
    (package.path / "config.json").write_text(json.dumps(config))
    return package


@pytest.fixture(params=["kv", "cross"])
def package(request: pytest.FixtureRequest, tmp_path: Path) -> TinyPackage:
    """A decoder, alone or with an encoder whose rows its first run makes a cache of."""
    return without_decoder(tmp_path / "model", request.param)


def decoder_of(package: TinyPackage) -> Decoder:
    """The decoder of a package, to be built in another form."""
    assert isinstance(package.twin, SumRule)
    return Decoder(package.twin, make_cache(KindOptions(**package.options)), Geometry())


def check(package: TinyPackage, **load: Any) -> gp.Pipeline:
    """The draft leaves nothing open, and prompts that come together get the tokens of their twin."""
    assert write_draft(package.path, name="found").questions == ()
    assert gp.validate(package.path)[1] == ()
    prompts = [package.vocabulary.encode(text) for text in TEXTS]
    pipe = gp.load(package.path, prefill_chunk=8, **load)
    streams = [pipe.stream(tokens=prompt, temperature=0, max_new_tokens=9) for prompt in prompts]
    found = [[event.token for event in stream if event.token is not None] for stream in streams]
    assert found == [package.answer(prompt, 9) for prompt in prompts]
    return pipe


def test_a_merged_decoder_takes_a_prompt_whole(package: TinyPackage) -> None:
    merged_graph(decoder_of(package)).save(package.path / "model.onnx")
    with check(package) as pipe:
        assert pipe.stats()["runs"]["prefill"] == len(TEXTS)
    assert "span: {first: whole, later: 1}" in (package.path / METADATA_FILE).read_text()


def test_tokens_that_are_never_chosen_or_never_first_are_kept(tmp_path: Path) -> None:
    package = write_package(tmp_path / "model", "kv", update="append")
    (package.path / METADATA_FILE).unlink()
    prompt = package.vocabulary.encode("hello")
    first, second, third = package.answer(prompt, 3)
    (package.path / "config.json").write_text(json.dumps({"max_position_embeddings": 200}))
    never = {"suppress_tokens": [2], "begin_suppress_tokens": [first, -1], "eos_token_id": list(package.end_ids)}
    (package.path / "generation_config.json").write_text(json.dumps(never))
    assert write_draft(package.path, name="found").questions == ()
    spec, problems = gp.validate(package.path)
    assert problems == ()
    assert spec is not None
    assert spec.stages[0].decode is not None
    assert (spec.stages[0].decode.suppress, spec.stages[0].decode.begin_suppress) == ((2,), (first,))
    with gp.load(package.path) as pipe:
        assert pipe.generate(tokens=prompt, temperature=0, max_new_tokens=1).tokens[0] != first
        begun = pipe.generate(tokens=[*prompt, first], temperature=0, max_new_tokens=2).tokens
    assert list(begun) == [second, third]


def test_two_decoders_are_one_component(package: TinyPackage) -> None:
    decoder = decoder_of(package)
    first_graph(decoder).save(package.path / "decoder_model.onnx")
    later_graph(decoder).save(package.path / "decoder_with_past_model.onnx")
    with check(package) as pipe:
        assert pipe.stats()["runs"]["prefill"] == len(TEXTS)
    text = (package.path / METADATA_FILE).read_text()
    assert "model: {first: decoder_model.onnx, later: decoder_with_past_model.onnx}" in text
    assert "span: {first: whole, later: 1}" in text


def test_a_later_decoder_that_only_reads_the_cross_cache(tmp_path: Path) -> None:
    package = without_decoder(tmp_path / "model", "cross")
    reader = write_package(tmp_path / "reader", "cross", update="append")
    first_graph(decoder_of(package)).save(package.path / "a.onnx")
    later_graph(decoder_of(reader)).save(package.path / "b.onnx")
    check(package).close()
    text = (package.path / METADATA_FILE).read_text()
    assert "model: {first: a.onnx, later: b.onnx}" in text
    assert "update: fixed  # the graph for first runs gives it" in text


@pytest.mark.parametrize("update", ["append", "in_place"])
def test_a_decoder_of_prompts_beside_one_of_single_tokens(tmp_path: Path, update: Any) -> None:
    package = without_decoder(tmp_path / "model", "kv", update)
    model = onnx.load(decoder_of(package).build().save(package.path / "prefill.onnx"))
    for port in model.graph.input:
        if port.name in ("input_ids", "position_ids"):
            port.type.tensor_type.shape.dim[1].dim_value = 1
    onnx.save(model, package.path / "decode.onnx")
    with check(package) as pipe:
        assert pipe.stats()["runs"]["prefill"] <= len(TEXTS)
    text = (package.path / METADATA_FILE).read_text()
    assert "model: {first: prefill.onnx, later: decode.onnx}" in text
    assert "span: {first: whole, later: 1}" in text


def test_precisions_of_a_pair_are_asked_for_each_graph(package: TinyPackage) -> None:
    decoder = decoder_of(package)
    for suffix in ("", "_q4"):
        first_graph(decoder).save(package.path / f"decoder{suffix}.onnx")
        later_graph(decoder).save(package.path / f"later{suffix}.onnx")
    asked = {question.at.path: question.message for question in write_draft(package.path, name="found").questions}
    assert set(asked) == {"components.decoder.model.first", "components.decoder.model.later"}
    assert "later.onnx | later_q4.onnx" in asked["components.decoder.model.later"]


def test_a_merged_decoder_beside_the_two_leaves_a_choice(package: TinyPackage) -> None:
    decoder = decoder_of(package)
    for name, make in (("a", first_graph), ("b", later_graph), ("c", merged_graph)):
        make(decoder).save(package.path / f"{name}.onnx")
    asked = {question.at.path for question in write_draft(package.path, name="found").questions}
    assert "stages" in asked

"""Decoders and encoder-decoder pairs as Optimum lays them out give the tokens of their closed form."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.optimum import import_optimum
from genai_pipeline.testing.graphs.branches import first_graph, later_graph, merged_graph

PROMPTS = ("a", "hello world", "some more of it")


@pytest.fixture
def parts(request: pytest.FixtureRequest) -> Any:
    """The helpers of this folder's conftest."""
    return request.config.pluginmanager.get_plugin(str(Path(__file__).parent / "conftest.py"))


def answers(path: Path, folder: Any) -> None:
    """The package is valid, and three prompts at once get the tokens of their closed form."""
    spec, problems = gp.validate(path)
    assert spec is not None
    assert problems == ()
    prompts = [folder.package.vocabulary.encode(text) for text in PROMPTS]
    with gp.load(path) as pipe, ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda ids: pipe.generate(tokens=ids, max_new_tokens=10, temperature=0), prompts))
    assert [list(result.tokens) for result in found] == [folder.package.answer(ids, 10) for ids in prompts]


def test_a_decoder_with_positions_and_mask(folder: Callable[..., Any], tmp_path: Path) -> None:
    source = folder("kv")
    source.graph("model.onnx", source.tiny())
    import_optimum(source.path, tmp_path / "made")
    answers(tmp_path / "made", source)


@pytest.mark.parametrize("options", [{"positions": "mask"}, {"update": "in_place"}], ids=["no positions", "in place"])
def test_a_decoder_gets_the_inputs_it_has(folder: Callable[..., Any], tmp_path: Path, options: dict[str, str]) -> None:
    source = folder("kv", **options)
    source.graph("model_quantized.onnx", source.tiny())
    import_optimum(source.path, tmp_path / "made", name="tiny")
    answers(tmp_path / "made", source)


def test_the_switch_of_a_merged_decoder_says_whether_there_is_a_past(
    folder: Callable[..., Any], parts: Any, tmp_path: Path
) -> None:
    source = folder("kv")
    source.graph("decoder_model_merged.onnx", parts.with_switch(source.tiny()))
    import_optimum(source.path, tmp_path / "made")
    answers(tmp_path / "made", source)


def test_a_prompt_goes_whole_into_the_first_branch_of_a_merged_decoder(
    folder: Callable[..., Any], parts: Any, tmp_path: Path
) -> None:
    source = folder("kv")
    merged_graph(parts.decoder_of(source.package)).save(source.path / "onnx" / "decoder_model_merged.onnx")
    import_optimum(source.path, tmp_path / "made")
    assert "span: {first: whole, later: 1}" in (tmp_path / "made" / "inference_metadata.yaml").read_text()
    answers(tmp_path / "made", source)
    prompt = source.package.vocabulary.encode("a prompt of some length " * 4)
    with gp.load(tmp_path / "made", prefill_chunk=8, max_batch=4) as pipe:
        found = pipe.generate(tokens=prompt, n=3, max_new_tokens=6, temperature=0)
        stats = pipe.stats()
    assert [list(choice.tokens) for choice in found.choices] == [source.package.answer(prompt, 6)] * 3
    assert stats["runs"]["prefill"] == 3
    assert stats["tokens"]["prompt"] == 3 * len(prompt)


def test_weights_are_the_same_file(folder: Callable[..., Any], tmp_path: Path) -> None:
    source = folder("kv")
    onnx.save(
        source.tiny(), str(source.path / "onnx" / "model.onnx"), save_as_external_data=True, location="weights.data",
        size_threshold=512,
    )  # fmt: skip
    import_optimum(source.path, tmp_path / "made")
    made, given = (root / "onnx" / "weights.data" for root in (tmp_path / "made", source.path))
    assert made.samefile(given)
    answers(tmp_path / "made", source)


def encoder_decoder(source: Any, parts: Any) -> Any:
    """An encoder's graph under its names, and that of the decoder that captures its cross cache."""
    encoder = parts.renamed(
        source.tiny("encoder.onnx"), lambda name: "last_hidden_state" if name == "source_states" else name
    )
    source.graph("encoder_model.onnx", encoder)
    source.json("generation_config.json", {"decoder_start_token_id": 0, "eos_token_id": 1, "max_length": 20})
    return parts.renamed(source.tiny(), parts.cross_name)


def test_a_merged_decoder_captures_the_cross_cache(folder: Callable[..., Any], parts: Any, tmp_path: Path) -> None:
    source = folder("cross", captured=True)
    source.graph("decoder_model_merged.onnx", parts.with_switch(encoder_decoder(source, parts)))
    import_optimum(source.path, tmp_path / "made")
    answers(tmp_path / "made", source)


def test_the_first_branch_of_a_merged_decoder_captures_the_cross_cache(
    folder: Callable[..., Any], parts: Any, tmp_path: Path
) -> None:
    source = folder("cross", captured=True)
    encoder_decoder(source, parts)
    model = merged_graph(parts.decoder_of(source.package)).save(tmp_path / "merged.onnx")
    source.graph("decoder_model_merged.onnx", parts.renamed(onnx.load(model), parts.cross_name))
    import_optimum(source.path, tmp_path / "made")
    assert "span: {first: whole, later: 1}" in (tmp_path / "made" / "inference_metadata.yaml").read_text()
    answers(tmp_path / "made", source)


@pytest.mark.parametrize("captured", [True, False], ids=["computes again", "reads only"])
def test_a_pair_of_decoders_shares_the_cross_cache(
    folder: Callable[..., Any], parts: Any, tmp_path: Path, captured: bool
) -> None:
    source = folder("cross", captured=True)
    encoder_decoder(source, parts)
    later = source.package if captured else parts.write_package(tmp_path / "reads", "cross", update="append")
    for name, graph in (
        ("decoder_model", first_graph(parts.decoder_of(source.package))),
        ("decoder_with_past_model", later_graph(parts.decoder_of(later))),
    ):
        model = onnx.load(graph.save(tmp_path / f"{name}.onnx"))
        source.graph(f"{name}.onnx", parts.renamed(model, parts.cross_name))
    import_optimum(source.path, tmp_path / "made")
    answers(tmp_path / "made", source)


def test_a_pair_of_text_decoders(folder: Callable[..., Any], parts: Any, tmp_path: Path) -> None:
    source = folder("kv")
    decoder = parts.decoder_of(source.package)
    first_graph(decoder).save(source.path / "onnx" / "decoder_model.onnx")
    later_graph(decoder).save(source.path / "onnx" / "decoder_with_past_model.onnx")
    import_optimum(source.path, tmp_path / "made")
    text = (tmp_path / "made" / "inference_metadata.yaml").read_text()
    assert "{first: onnx/decoder_model.onnx, later: onnx/decoder_with_past_model.onnx}" in text
    assert "span: {first: whole, later: 1}" in text
    answers(tmp_path / "made", source)


def test_a_decoder_that_was_traced_with_a_past_gets_single_tokens(
    folder: Callable[..., Any], parts: Any, tmp_path: Path
) -> None:
    source = folder("kv")
    later_graph(parts.decoder_of(source.package)).save(source.path / "onnx" / "decoder_with_past_model.onnx")
    import_optimum(source.path, tmp_path / "made")
    answers(tmp_path / "made", source)


def test_a_first_decoder_without_its_cache_is_refused(folder: Callable[..., Any], parts: Any, tmp_path: Path) -> None:
    source = folder("kv")
    decoder = parts.decoder_of(source.package)
    model = onnx.load(first_graph(decoder).save(tmp_path / "first.onnx"))
    kept = [port for port in model.graph.output if port.name == "logits"]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    source.graph("decoder_model.onnx", model)
    later_graph(decoder).save(source.path / "onnx" / "decoder_with_past_model.onnx")
    with pytest.raises(ImportRefusedError, match="exported without its cache"):
        import_optimum(source.path, tmp_path / "made")


def test_settings_of_answers_become_defaults(folder: Callable[..., Any], parts: Any, tmp_path: Path) -> None:
    source = folder("cross", captured=True)
    source.graph("decoder_model_merged.onnx", parts.with_switch(encoder_decoder(source, parts)))
    settings = {"decoder_start_token_id": 0, "eos_token_id": 1, "bad_words_ids": [[5], [2]], "forced_bos_token_id": 40}
    settings |= {"max_length": 6, "min_length": 3, "forced_eos_token_id": 1, "num_beams": 1, "length_penalty": 2.0}
    source.json("generation_config.json", settings)
    import_optimum(source.path, tmp_path / "made")
    spec, problems = gp.validate(tmp_path / "made")
    assert problems == ()
    assert spec is not None
    assert spec.generation is not None
    lengths = {"max_new_tokens": 5, "min_new_tokens": 2}
    assert spec.generation.defaults == {
        "temperature": 0,
        "banned_token_ids": [2, 5],
        **lengths,
        "forced_token_ids": [40],
    }
    with gp.load(tmp_path / "made") as pipe:
        tokens = pipe.generate(tokens=source.package.vocabulary.encode("hello")).tokens
    assert tokens[0] == 40
    assert len(tokens) == 5


def test_tokens_that_are_never_chosen_or_never_first(folder: Callable[..., Any], tmp_path: Path) -> None:
    source = folder("kv")
    source.graph("model.onnx", source.tiny())
    prompt = source.package.vocabulary.encode("hello")
    first, second, third = source.package.answer(prompt, 3)
    source.json(
        "generation_config.json", {"eos_token_id": 1, "begin_suppress_tokens": [first], "suppress_tokens": [-1]}
    )
    import_optimum(source.path, tmp_path / "begins")
    with gp.load(tmp_path / "begins") as pipe:
        other = pipe.generate(tokens=prompt, max_new_tokens=1).tokens[0]
        assert other != first
        begun = pipe.generate(tokens=[*prompt, first], max_new_tokens=2).tokens
    assert list(begun) == [second, third]
    source.json("generation_config.json", {"eos_token_id": 1, "suppress_tokens": [second]})
    import_optimum(source.path, tmp_path / "never")
    with gp.load(tmp_path / "never") as pipe:
        tokens = pipe.generate(tokens=prompt, max_new_tokens=3).tokens
    assert tokens[0] == first
    assert second not in tokens


def test_tokens_that_an_answer_to_a_source_does_not_begin_with(
    folder: Callable[..., Any], parts: Any, tmp_path: Path
) -> None:
    source = folder("cross", captured=True)
    source.graph("decoder_model_merged.onnx", parts.with_switch(encoder_decoder(source, parts)))
    prompt = source.package.vocabulary.encode("hello")
    first = source.package.answer(prompt, 1)[0]
    settings = {"decoder_start_token_id": 0, "eos_token_id": 1, "begin_suppress_tokens": [first, 2]}
    source.json("generation_config.json", settings)
    import_optimum(source.path, tmp_path / "made")
    assert f"begin_suppress: [{first}, 2]" in (tmp_path / "made" / "inference_metadata.yaml").read_text()
    assert gp.validate(tmp_path / "made")[1] == ()
    with gp.load(tmp_path / "made") as pipe:
        assert pipe.generate(tokens=prompt, max_new_tokens=1).tokens[0] != first


def test_first_tokens_after_a_forced_one_are_refused(folder: Callable[..., Any], parts: Any, tmp_path: Path) -> None:
    source = folder("cross", captured=True)
    source.graph("decoder_model_merged.onnx", parts.with_switch(encoder_decoder(source, parts)))
    settings = {"decoder_start_token_id": 0, "eos_token_id": 1, "forced_bos_token_id": 40}
    source.json("generation_config.json", {**settings, "begin_suppress_tokens": [3]})
    with pytest.raises(ImportRefusedError, match="counts from the token after forced_bos_token_id"):
        import_optimum(source.path, tmp_path / "made")

"""A package appears whole or not at all; what cannot be imported is named before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.gguf import import_gguf

FILES = {"chat_template.jinja", "inference_metadata.yaml", "model.onnx", "model.onnx.data", "tokenizer.json"}
TEMPLATE = {"tokenizer.chat_template": "{{ messages[0]['content'] }}"}


def refused(tmp_path: Path, model: Any, message: str, extra: Any = None, **options: Any) -> ImportModelError:
    """The import fails with ``message`` and leaves nothing at or beside its target."""
    source = model.write(tmp_path / "tiny.gguf", extra)
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(ImportModelError, match=message) as caught:
        import_gguf(source, place / "package", **options)
    assert list(place.iterdir()) == []
    return caught.value


def test_a_package_has_its_files_and_no_others(tmp_path: Path, tiny_model: Any) -> None:
    source = tiny_model(general=TEMPLATE).write(tmp_path / "tiny.gguf")
    target = tmp_path / "deep" / "package"
    assert import_gguf(source, target, name="tiny") == target
    assert {path.name for path in target.iterdir()} == FILES
    assert [path.name for path in target.parent.iterdir()] == ["package"]
    assert (target / "chat_template.jinja").read_text() == TEMPLATE["tokenizer.chat_template"]


def test_an_empty_folder_may_be_the_target(tmp_path: Path, tiny_model: Any) -> None:
    source = tiny_model(general=TEMPLATE).write(tmp_path / "tiny.gguf")
    target = tmp_path / "package"
    target.mkdir()
    import_gguf(source, target)
    assert {path.name for path in target.iterdir()} == FILES


def test_what_a_check_refuses_leaves_nothing(tmp_path: Path, tiny_model: Any) -> None:
    seen: list[set[str]] = []

    def check(folder: Path, _what: str, _rows: Any) -> None:
        seen.append({path.name for path in folder.iterdir()})
        raise ImportModelError("not good")

    refused(tmp_path, tiny_model(general=TEMPLATE), "not good", check=check)
    assert seen == [FILES]  # once, with all of it


def test_a_taken_target_is_refused_and_left_alone(tmp_path: Path, tiny_model: Any) -> None:
    source = tiny_model().write(tmp_path / "tiny.gguf")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "note.txt").write_text("mine")
    with pytest.raises(ImportModelError, match="not an empty folder") as caught:
        import_gguf(source, tmp_path / "package")
    assert "new folder" in caught.value.hint
    assert [path.name for path in (tmp_path / "package").iterdir()] == ["note.txt"]


def test_progress_counts_every_source_byte(tmp_path: Path, tiny_model: Any) -> None:
    source = tiny_model().write(tmp_path / "tiny.gguf")
    steps: list[tuple[str, int, int]] = []
    import_gguf(source, tmp_path / "package", progress=lambda *step: steps.append(step))
    done = [step[1] for step in steps]
    assert done == sorted(done)
    assert steps[-1][1] == steps[-1][2] > 0


@pytest.mark.parametrize(
    ("error", "seen"),
    [(KeyboardInterrupt, KeyboardInterrupt), (OSError(28, "No space left on device"), ImportModelError)],
    ids=["interrupt", "full disk"],
)
def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, tiny_model: Any, error: BaseException, seen: type[BaseException]
) -> None:
    source = tiny_model().write(tmp_path / "tiny.gguf")
    place = tmp_path / "place"
    place.mkdir()

    def stop_halfway(_: str, done: int, total: int) -> None:
        if done * 2 > total > 0:
            raise error

    with pytest.raises(seen):
        import_gguf(source, place / "package", progress=stop_halfway)
    assert list(place.iterdir()) == []


def test_the_tied_table_is_stored_once(tmp_path: Path, tiny_model: Any) -> None:
    kinds = {"token_embd.weight": "Q8_0"}
    sizes = []
    for tied in (True, False):
        model = tiny_model(tied=tied, types=kinds | {"output.weight": "Q8_0"}, layers=1)
        source = model.write(tmp_path / f"{tied}.gguf")
        sizes.append((import_gguf(source, tmp_path / str(tied)) / "model.onnx.data").stat().st_size)
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "mamba"}, "architecture 'mamba' is not supported"),
        ({"metadata": {"expert_count": 8}}, r"mixture of experts \(llama.expert_count = 8\)"),
        ({"metadata": {"rope.scaling.type": "yarn"}}, "rope scaling 'yarn' is not supported"),
        ({"metadata": {"final_logit_softcapping": 30.0}}, "softcapped logits"),
        ({"metadata": {"rope.dimension_count": 8}}, "rope.dimension_count = 8 with heads of 16"),
        ({"metadata": {"block_count": None}}, "metadata key 'llama.block_count' is missing"),
        ({"metadata": {"attention.head_count_kv": [1, 2]}}, r"head_count_kv is \[1, 2\]"),
        ({"metadata": {"attention.head_count_kv": 3}}, "4 heads over 3 key and value heads"),
        ({"metadata": {"rope.freq_base": "high"}}, "rope.freq_base is 'high'"),
        ({"general": {"split.count": 2}}, "one part of a model split over 2 files"),
        ({"general": {"tokenizer.ggml.tokens": 7}}, "tokens is no list of strings"),
        ({"general": {"tokenizer.ggml.bos_token_id": "one"}}, "bos_token_id is 'one', outside"),
        ({"metadata": {"block_count": 3}}, "tensor 'blk.2.attn_q.weight' is missing"),
        ({"metadata": {"feed_forward_length": 64}}, r"ffn_gate.weight' has shape \[96, 64\], expected \[64, 64\]"),
        ({"general": {"tokenizer.ggml.model": "bert"}}, "tokenizer kind 'bert' is not supported"),
        ({"general": {"tokenizer.ggml.pre": "martian"}}, "pre-tokenizer 'martian' is not supported"),
        ({"general": {"tokenizer.ggml.eos_token_id": 9999}}, "eos_token_id is 9999, outside of the 97 tokens"),
        ({"general": {"tokenizer.ggml.add_eos_token": True}}, "ends every prompt with an end token"),
        ({"general": {"tokenizer.ggml.merges": ["he"]}}, "merge 'he' does not have two parts"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, tiny_model: Any, changes: Any, message: str) -> None:
    refused(tmp_path, tiny_model(**changes), message)


def test_supported_choices_are_in_the_hint(tmp_path: Path, tiny_model: Any) -> None:
    assert "gemma3, llama, mistral, qwen2, qwen3" in refused(tmp_path, tiny_model("mamba"), "not supported").hint


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, tiny_model: Any) -> None:
    source = tiny_model().write(tmp_path / "tiny.gguf")
    with pytest.raises(ImportModelError, match="cannot be written: "):
        import_gguf(source, source / "package")


@pytest.mark.parametrize("name", ["bad name!", "", ".hidden", "a/b", "tiny\n"])
def test_a_name_that_no_package_can_have_is_refused_first(tmp_path: Path, tiny_model: Any, name: str) -> None:
    error = refused(tmp_path, tiny_model(), "is no name for a package: a package name has letters, digits", name=name)
    assert error.hint == "choose another name"


def test_a_folder_whose_name_no_package_can_have_needs_another(tmp_path: Path, tiny_model: Any) -> None:
    source = tiny_model().write(tmp_path / "tiny.gguf")
    with pytest.raises(ImportModelError, match=r"the name of the folder .*bad name is no name") as caught:
        import_gguf(source, tmp_path / "bad name")
    assert "--name" in caught.value.hint
    import_gguf(source, tmp_path / "bad name", name="good-name")
    assert "name: good-name" in (tmp_path / "bad name" / "inference_metadata.yaml").read_text()


@pytest.mark.parametrize("source", [".", "absent.gguf"])
def test_what_is_no_file_is_named_before_any_work(tmp_path: Path, source: str) -> None:
    steps: list[str] = []
    with pytest.raises(ImportModelError):
        import_gguf(tmp_path / source, tmp_path / "package", progress=lambda task, *_: steps.append(task))
    assert steps == []


def test_an_unknown_precision_is_named(tmp_path: Path, tiny_model: Any) -> None:
    error = refused(tmp_path, tiny_model(), "unknown precision 'int3'", precision="int3")
    assert error.hint == "one of: float32, exact, fast"


def test_a_tensor_nobody_would_read_is_named(tmp_path: Path, tiny_model: Any) -> None:
    extra = {"blk.0.attn_sinks.weight": np.zeros(4, dtype=np.float32)}
    refused(tmp_path, tiny_model(), "'blk.0.attn_sinks.weight' is no part of a supported llama decoder", extra)


def test_an_unreadable_tensor_type_is_named(tmp_path: Path, tiny_model: Any) -> None:
    extra = {"blk.0.attn_q.bias": np.zeros(64, dtype=np.int32)}
    refused(tmp_path, tiny_model(), "'blk.0.attn_q.bias' has quantisation type I32, which is not supported", extra)


def test_sampling_defaults_come_from_the_file(tmp_path: Path, tiny_model: Any) -> None:
    model = tiny_model(general={"general.sampling.temp": 0.2, "general.sampling.top_k": 40})
    package = import_gguf(model.write(tmp_path / "tiny.gguf"), tmp_path / "package")
    text = (package / "inference_metadata.yaml").read_text()
    assert "generation: {defaults: {temperature: 0.2, top_k: 40}}" in text
    assert len(text.splitlines()) < 40


def test_tokenizer_json_marks_control_tokens(tmp_path: Path, tiny_model: Any) -> None:
    package = import_gguf(tiny_model().write(tmp_path / "tiny.gguf"), tmp_path / "package")
    added = json.loads((package / "tokenizer.json").read_text())["added_tokens"]
    assert [(token["content"], token["special"]) for token in added] == [("<|end|>", True), ("<|start|>", True)]


def test_the_last_layers_can_be_left_out(tmp_path: Path, tiny_model: Any, plain_decoder: Any) -> None:
    source = tiny_model().write(tmp_path / "tiny.gguf")
    whole = import_gguf(source, tmp_path / "whole", precision="float32")
    all_kept = import_gguf(source, tmp_path / "kept", precision="float32", layers=2)
    short = import_gguf(source, tmp_path / "short", precision="float32", layers=1)
    assert (all_kept / "model.onnx.data").read_bytes() == (whole / "model.onnx.data").read_bytes()
    assert "layers: 1" in (short / "inference_metadata.yaml").read_text()
    assert (short / "tokenizer.json").read_bytes() == (whole / "tokenizer.json").read_bytes()
    tokens = [3, 4, 5]
    first, second = (np.asarray(plain_decoder(path / "model.onnx").feed(tokens)) for path in (whole, short))
    assert first.shape == second.shape
    assert not np.allclose(first, second)


@pytest.mark.parametrize("layers", [0, -1, 99])
def test_no_other_number_of_layers_is_taken(tmp_path: Path, tiny_model: Any, layers: int) -> None:
    error = refused(tmp_path, tiny_model(), "the model has 2 layers", layers=layers)
    assert error.hint == "keep 1 to 2"

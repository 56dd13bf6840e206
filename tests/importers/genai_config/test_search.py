"""Search defaults, session options, tokens and templates; what cannot be said is refused, all at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.errors import ImportModelError, ImportRefusedError
from genai_pipeline.importers.genai_config import import_genai_config
from genai_pipeline.metadata.load import load_package
from genai_pipeline.metadata.model import PackageSpec

Folders = Callable[..., Any]


def spec_of(folder: Any, target: Path) -> PackageSpec:
    import_genai_config(folder.path, target)
    spec, problems = load_package(target)
    assert spec is not None
    assert problems == ()
    return spec


def searching(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: config["search"].update(values)


@pytest.mark.parametrize(
    ("search", "defaults"),
    [
        ({}, {"temperature": 0}),
        ({"do_sample": False, "temperature": 0.7, "top_k": 40, "top_p": 0.9}, {"temperature": 0}),
        ({"do_sample": True, "top_k": 1, "temperature": 0.7}, {"temperature": 0}),
        ({"do_sample": True}, {"temperature": 1, "top_k": 50}),
        (
            {"do_sample": True, "temperature": 0.6, "top_k": 0, "top_p": 0.9},
            {"temperature": 0.6, "top_k": 0, "top_p": 0.9},
        ),
        ({"do_sample": True, "top_k": 5, "top_p": 1.0, "random_seed": 7}, {"temperature": 1, "top_k": 5, "seed": 7}),
        ({"do_sample": True, "top_k": 5, "random_seed": -1}, {"temperature": 1, "top_k": 5}),
        ({"repetition_penalty": 1.1, "no_repeat_ngram_size": 3}, {"temperature": 0, "repetition_penalty": 1.1}),
        ({"num_beams": 1, "length_penalty": 2.0, "early_stopping": True}, {"temperature": 0}),
        (
            {"num_beams": 4, "length_penalty": 0.0, "early_stopping": False},
            {"temperature": 0, "num_beams": 4, "length_penalty": 0.0, "early_stopping": False},
        ),
    ],
)
def test_search_becomes_generation_defaults(
    genai_folder: Folders, tmp_path: Path, search: dict[str, Any], defaults: dict[str, Any]
) -> None:
    folder = genai_folder(edit=searching(**search))
    generation = spec_of(folder, tmp_path / "made").generation
    assert generation is not None
    assert dict(generation.defaults) == defaults


@pytest.mark.parametrize(("most", "limit"), [(0, 256), (256, 256), (999, 256), (40, 40)])
def test_max_length_counts_prompt_and_answer(genai_folder: Folders, tmp_path: Path, most: int, limit: int) -> None:
    spec_of(genai_folder(edit=searching(max_length=most)), tmp_path / "made")
    assert f"context_length: {limit}" in (tmp_path / "made" / "inference_metadata.yaml").read_text()


def test_a_phi3_ends_where_its_cache_would_be_computed_anew(genai_folder: Folders, tmp_path: Path) -> None:
    def edit(config: dict[str, Any]) -> None:
        config["model"] |= {"type": "phi3", "context_length": 131072}
        config["search"]["max_length"] = 131072

    spec_of(genai_folder(edit=edit), tmp_path / "made")
    assert "context_length: 4096" in (tmp_path / "made" / "inference_metadata.yaml").read_text()


def test_everything_that_cannot_be_said_is_refused_at_once(genai_folder: Folders, tmp_path: Path) -> None:
    def edit(config: dict[str, Any]) -> None:
        config["search"] |= {"min_length": 20, "num_return_sequences": 2, "num_beams": 2, "do_sample": True}
        config["model"]["decoder"]["session_options"]["custom_ops_library"] = "mine.so"
        config["model"]["decoder"]["sliding_window"] = {"window_size": 16}
        config["model"]["decoder"]["state_groups"] = [{"layer_ids": [0]}]
        config["model"]["decoder"]["num_hidden_layers"] = 5

    folder = genai_folder(edit=edit)
    with pytest.raises(ImportRefusedError) as caught:
        import_genai_config(folder.path, tmp_path / "made")
    assert {row["key"] for row in caught.value.rows} == {
        "search.min_length",
        "search.num_return_sequences",
        "search.num_beams",
        "search.length_penalty",
        "model.decoder.session_options.custom_ops_library",
        "model.decoder.sliding_window",
        "model.decoder.state_groups",
        "model.decoder.num_hidden_layers",
    }
    assert all(row["key"] in caught.value.message for row in caught.value.rows)
    assert len(caught.value.message.splitlines()) == 9
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("window", [{"window_size": 16, "slide_key_value_cache": False, "slide_inputs": True}])
def test_a_window_that_only_cuts_the_prompt_is_dropped(
    genai_folder: Folders, tmp_path: Path, window: dict[str, Any]
) -> None:
    folder = genai_folder(edit=lambda config: config["model"]["decoder"].update(sliding_window=window))
    report = import_genai_config(folder.path, tmp_path / "made")
    assert [row.outcome for row in report.rows if row.key == "model.decoder.sliding_window"] == ["dropped"]


def test_providers_and_configuration_entries_go_to_the_session(genai_folder: Folders, tmp_path: Path) -> None:
    def edit(config: dict[str, Any]) -> None:
        config["model"]["decoder"]["session_options"] = {
            "intra_op_num_threads": 4,
            "disable_quant_qdq": True,
            "session.disable_prepacking": "1",
            "provider_options": [{"DML": {}}, {"cuda": {"enable_cuda_graph": "1", "gpu_mem_limit": "1000"}}],
        }

    report = import_genai_config(genai_folder(edit=edit).path, tmp_path / "made")
    spec, _ = load_package(tmp_path / "made")
    assert spec is not None
    session = spec.components["decoder"].session
    assert session is not None
    assert tuple(session.providers) == ("dml", "cuda", "cpu")
    assert session.provider_options == {"cuda": {"gpu_mem_limit": "1000"}}
    assert session.config == {"session.disable_quant_qdq": "1", "session.disable_prepacking": "1"}
    dropped = {row.key.rpartition(".")[2] for row in report.rows if row.outcome == "dropped"}
    assert {"enable_cuda_graph", "intra_op_num_threads"} <= dropped


def _with_providers(genai_folder: Folders, value: Any) -> Path:
    def edit(config: dict[str, Any]) -> None:
        config["model"]["decoder"]["session_options"] = {"provider_options": value}

    path: Path = genai_folder(edit=edit).path
    return path


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x", r'provider_options is "x"; allowed: a list'),
        ({"cuda": {}}, r"provider_options is .*; allowed: a list"),
        (["cuda"], r'provider_options\[0\] is "cuda"; allowed: a mapping'),
        ([{"cuda": "fast"}], r'provider_options\[0\]\.cuda is "fast"; allowed: a mapping'),
    ],
)
def test_providers_are_a_list_of_mappings(genai_folder: Folders, tmp_path: Path, value: Any, said: str) -> None:
    with pytest.raises(ImportModelError, match=said):
        import_genai_config(_with_providers(genai_folder, value), tmp_path / "made")


def test_a_provider_that_nobody_knows_is_refused_with_the_nearest(genai_folder: Folders, tmp_path: Path) -> None:
    with pytest.raises(ImportRefusedError, match=r"provider_options\[0\]\.cdua: 'cdua' is no provider") as caught:
        import_genai_config(_with_providers(genai_folder, [{"cdua": {}}]), tmp_path / "made")
    assert "did you mean 'cuda'" in caught.value.hint
    assert not (tmp_path / "made").exists()


def test_an_unknown_key_is_dropped_with_the_nearest(genai_folder: Folders, tmp_path: Path) -> None:
    report = import_genai_config(genai_folder(edit=searching(repetition_penalti=1.5)).path, tmp_path / "made")
    (row,) = [row for row in report.rows if row.key == "search.repetition_penalti"]
    assert (row.outcome, "repetition_penalty" in row.detail) == ("dropped", True)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda config: config["model"].pop("decoder"), ("'model.decoder' is missing",)),
        (lambda config: config["model"].pop("context_length"), ("'model.context_length' is missing",)),
        (lambda config: config["model"].update(context_length="256"), ("model.context_length", '"256"', "integer")),
        (lambda config: config["model"].update(eos_token_id=["x"]), ("model.eos_token_id", "integers")),
        (lambda config: config["model"]["decoder"].update(filename="modle.onnx"), ("modle.onnx", "missing")),
        (lambda config: config.update(search=[1]), ("search is [1]", "a mapping")),
        (lambda config: config["search"].update(top_k=-1), ("search.top_k is -1", "at least 0")),
    ],
)
def test_a_wrong_or_missing_value_is_named(
    genai_folder: Folders, tmp_path: Path, edit: Callable[[dict[str, Any]], object], words: tuple[str, ...]
) -> None:
    with pytest.raises(ImportModelError) as caught:
        import_genai_config(genai_folder(edit=edit).path, tmp_path / "made")
    assert all(word in caught.value.message for word in words)


def test_a_missing_tokenizer_is_named(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder()
    (folder.path / "tokenizer.json").unlink()
    with pytest.raises(ImportModelError, match=r"tokenizer\.json"):
        import_genai_config(folder.path, tmp_path / "made")


OWN, OTHER = "own {{ messages[0].content }}", "other {{ messages[0].content }}"


@pytest.mark.parametrize(
    ("own_file", "configured", "expected"),
    [
        (OWN, None, OWN),
        (OWN, OTHER, OWN),
        (None, OTHER, OTHER),
        (None, [{"name": "tool_use", "template": OWN}, {"name": "default", "template": OTHER}], OTHER),
        (None, None, None),
    ],
)
def test_the_chat_template_comes_from_its_own_file_first(
    genai_folder: Folders, tmp_path: Path, own_file: str | None, configured: Any, expected: str | None
) -> None:
    folder = genai_folder(chat_template=own_file)
    config = {} if configured is None else {"chat_template": configured}
    (folder.path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", **config}))
    made = tmp_path / "made"
    import_genai_config(folder.path, made)
    template = made / "chat_template.jinja"
    assert (template.read_text() if template.exists() else None) == expected
    _, problems = gp.validate(made)
    assert problems == ()


def test_tokens_are_written_by_their_text_where_it_is_known(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder()
    first, second = folder.package.end_ids
    texts = {str(first): {"content": "<|im_end|>"}, str(second): {"content": "</s>"}}
    config = {
        "added_tokens_decoder": texts,
        "eos_token": "</s>",
        "bos_token": {"content": "<s>"},
        "add_bos_token": True,
    }
    (folder.path / "tokenizer_config.json").write_text(json.dumps(config))
    spec = spec_of(folder, tmp_path / "made")
    tokenizer = spec.tokenizers["default"]
    assert tokenizer.eos == ("</s>", "<|im_end|>")
    assert (tokenizer.bos, tokenizer.add_bos) == ("<s>", True)


def _inputs(**changed: str) -> Callable[[dict[str, Any]], object]:
    return lambda config: config["model"]["decoder"]["inputs"].update(changed)


@pytest.mark.parametrize(
    ("edit", "hint"),
    [
        (_inputs(past_key_names="past_kv.%d.key"), "past_key_names is 'past_kv.%d.key', .*'past_key_values.%d.key' is"),
        (
            _inputs(past_key_names="past_kv.%d.key", past_value_names="past_kv.%d.value"),
            "past_key_names is 'past_kv.%d.key'.*; .*past_value_names is 'past_kv.%d.value', .*values.%d.value' is",
        ),
        (_inputs(past_value_names="past.%d.%d.value"), "past_value_names is .*; 'past_key_values.%d.value' is"),
        (_inputs(input_ids="inputids"), "inputs.input_ids is 'inputids', .*; 'input_ids' is"),
        (
            lambda config: config["model"]["decoder"]["outputs"].update(present_key_names="presnt.%d.key"),
            "did you mean 'present.%d.key'",
        ),
    ],
)
def test_a_name_that_no_port_has_is_the_one_that_the_hint_is_about(
    genai_folder: Folders, tmp_path: Path, edit: Callable[[dict[str, Any]], object], hint: str
) -> None:
    source = genai_folder(edit=edit, update="append")
    with pytest.raises(ImportRefusedError) as refused:
        import_genai_config(source.path, tmp_path / "made")
    assert re.search(hint, refused.value.hint)
    assert "did you mean 'past" not in refused.value.hint

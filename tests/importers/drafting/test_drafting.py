"""Drafts of folders: those that leave nothing open run at once and give their twins' tokens; the rest asks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.drafting import Draft, write_draft
from genai_pipeline.metadata.load import METADATA_FILE
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.media import write_embedder, write_listener
from genai_pipeline.testing.packages import TinyPackage, write_graph, write_package
from genai_pipeline.testing.signals import PITCH_WORDS

F32, I64 = "float32", "int64"
Ports = dict[str, tuple[str, list[int | str]]]


def _without_metadata(folder: Path, kind: str, **options: Any) -> TinyPackage:
    """A closed-form package as a folder of unknown origin: graphs, tokenizer and the usual config files."""
    package = write_package(folder, kind, **options)
    (folder / METADATA_FILE).unlink()
    start = package.vocabulary.id("<s>")
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 200, "decoder_start_token_id": start}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": list(package.end_ids)}))
    return package


def _ports(folder: Path, file: str, inputs: Ports, outputs: Ports) -> None:
    """An ONNX file with these ports, which computes nothing of sense."""
    graph = GraphBuilder()
    for name, (dtype, shape) in inputs.items():
        graph.input(name, dtype, shape)
    for name, (dtype, shape) in outputs.items():
        sizes = [dim if isinstance(dim, int) else 1 for dim in shape]
        graph.output(name, graph.op("Expand", graph.const(0, dtype), sizes), dtype, shape)
    write_graph(folder / file, graph)


def _asked(draft: Draft) -> dict[str, str]:
    return {question.at.path: question.message for question in draft.questions}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("kv", {"update": "in_place"}),
        ("kv", {"update": "in_place", "positions": "input"}),
        ("kv", {"update": "in_place", "dtype": "float16"}),
        ("kv", {"update": "append"}),
        ("kv", {"update": "append", "positions": "mask", "value_dtype": "float16"}),
        ("kv", {"update": "scatter"}),
        ("embeds", {"update": "in_place"}),
        ("embeds", {"update": "append"}),
        ("cross", {"update": "append"}),
        ("cross", {"update": "in_place", "captured": True}),
        ("recurrent", {}),
    ],
)
def test_a_folder_that_leaves_nothing_open_runs_at_once(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    package = _without_metadata(tmp_path, kind, **options)
    assert write_draft(tmp_path, name="found").questions == ()
    spec, problems = gp.validate(tmp_path)
    assert problems == ()
    assert spec is not None
    prompt = package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(tmp_path) as pipe:
        found = pipe.generate(tokens=prompt, max_new_tokens=16, temperature=0)
    assert list(found.tokens) == package.answer(prompt, 16)


def test_a_graph_that_gives_vectors_of_texts_runs_at_once(tmp_path: Path) -> None:
    package = write_embedder(tmp_path)
    text = "".join((PITCH_WORDS[0], PITCH_WORDS[0], PITCH_WORDS[1]))
    with gp.load(tmp_path) as pipe:
        (unit,) = pipe.run({"prompt": [text]})["texts"]
    for name in (METADATA_FILE, "sound_tower.onnx"):
        (tmp_path / name).unlink(missing_ok=True)
    assert write_draft(tmp_path, name="found").questions == ()
    with gp.load(package.path) as pipe:
        (vector,) = pipe.run({"prompt": [text]})["embedding"]
    length = sum(number * number for number in vector) ** 0.5
    assert [number / length for number in vector] == pytest.approx(list(unit), abs=1e-6)


def test_rows_of_an_encoder_ask_how_they_become_a_vector(tmp_path: Path) -> None:
    tokens: Ports = {"input_ids": (I64, ["b", "s"]), "attention_mask": (I64, ["b", "s"])}
    _ports(tmp_path, "model.onnx", tokens, {"last_hidden_state": (F32, ["b", "s", 16])})
    write_package(tmp_path / "words", "table").path.joinpath("tokenizer.json").rename(tmp_path / "tokenizer.json")
    (tmp_path / "words" / "model.onnx").unlink()
    asked = _asked(write_draft(tmp_path, name="found"))
    assert asked == {"stages[0].body[1].with.kind": "still open: how do rows become one vector? mean | cls | last"}
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.Normalize"}]')
    assert write_draft(tmp_path, name="found", force=True).questions == ()
    assert gp.validate(tmp_path)[1] == ()


def test_what_only_config_files_know_is_asked_where_they_are_missing(tmp_path: Path) -> None:
    _without_metadata(tmp_path, "kv")
    for name in ("config.json", "generation_config.json"):
        (tmp_path / name).unlink()
    draft = write_draft(tmp_path, name="found")
    assert set(_asked(draft)) == {"tokenizer.eos", "limits.context_length"}
    assert "<|im_end|>" in _asked(draft)["tokenizer.eos"]
    _, problems = gp.validate(tmp_path)
    assert [(p.code, p.at.path, p.severity) for p in problems] == [
        ("draft.todo", "tokenizer.eos", "error"),
        ("draft.todo", "limits.context_length", "error"),
    ]
    assert all(problem.at.line > 0 for problem in problems)


@pytest.mark.parametrize(("ends", "named"), [(9999, "9999"), ([2, 3, -1], "-1"), ([-1, 2, 9999], "-1, 9999")])
def test_end_tokens_that_the_vocabulary_lacks_are_asked_for(tmp_path: Path, ends: Any, named: str) -> None:
    _without_metadata(tmp_path, "kv", update="append")
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 200, "eos_token_id": ends}))
    asked = _asked(write_draft(tmp_path, name="found"))
    assert set(asked) == {"tokenizer.eos"}
    assert f"config.json: eos_token_id has {named}, which the vocabulary does not have" in asked["tokenizer.eos"]


def test_answers_in_place_of_the_questions_make_it_run(tmp_path: Path) -> None:
    package = _without_metadata(tmp_path, "kv", update="append")
    (tmp_path / "config.json").unlink()
    draft = write_draft(tmp_path, name="found")
    lines = draft.file.read_text().splitlines()
    answered = ["limits: {context_length: 100}" if line.startswith("limits:") else line for line in lines]
    draft.file.write_text("\n".join(answered))
    prompt = package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(tmp_path) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=8, temperature=0).tokens) == package.answer(prompt, 8)


def test_an_encoder_decoder_without_a_start_token_asks_for_it(tmp_path: Path) -> None:
    _without_metadata(tmp_path, "cross")
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')
    assert set(_asked(write_draft(tmp_path, name="found"))) == {"stages[1].prompt"}


def test_a_decoder_without_state_may_be_a_tagger(tmp_path: Path) -> None:
    _without_metadata(tmp_path, "pos")
    (question,) = write_draft(tmp_path, name="found").questions
    assert "does it label each token" in question.message


def test_pictures_and_sounds_ask_for_their_program_and_their_token(tmp_path: Path) -> None:
    write_listener(tmp_path).path.joinpath(METADATA_FILE).unlink()
    asked = _asked(write_draft(tmp_path, name="found"))
    assert {"inputs.media.modality", "inputs.media.program", "inputs.media.placeholder.token"} <= set(asked)
    text = (tmp_path / METADATA_FILE).read_text()
    assert "op: splice" in text
    assert "count: 2" in text


def test_a_trio_that_looks_like_a_transducer_is_described_and_not_guessed(tmp_path: Path) -> None:
    _ports(tmp_path, "encoder.onnx", {"audio_signal": (F32, ["b", 80, "t"])}, {"outputs": (F32, ["b", "t", 64])})
    _ports(
        tmp_path,
        "predictor.onnx",
        {"targets": (I64, ["b", "u"]), "states_1": (F32, [2, "b", 32])},
        {"outputs": (F32, ["b", "u", 48]), "output_states_1": (F32, [2, "b", 32])},
    )
    rows: Ports = {"encoder_outputs": (F32, ["b", "t", 64]), "decoder_outputs": (F32, ["b", "u", 48])}
    _ports(tmp_path, "joiner.onnx", rows, {"logits": (F32, ["b", "t", 100])})
    draft = write_draft(tmp_path, name="found")
    assert list(_asked(draft)) == ["inputs", "outputs", "stages"]
    assert "joiner joins rows of two graphs into logits, as in a transducer" in _asked(draft)["stages"]
    assert "loop:" not in draft.file.read_text().partition("stages:")[0]
    _, problems = gp.validate(tmp_path)
    assert {p.code for p in problems} == {"draft.todo"}


def test_files_with_the_same_ports_are_a_choice(tmp_path: Path) -> None:
    _without_metadata(tmp_path, "kv")
    (tmp_path / "model_q4.onnx").write_bytes((tmp_path / "model.onnx").read_bytes())
    asked = _asked(write_draft(tmp_path, name="found"))
    assert list(asked) == ["components.decoder.model"]
    assert "model.onnx | model_q4.onnx" in asked["components.decoder.model"]


def test_an_extra_input_that_nothing_explains_is_asked_about(tmp_path: Path) -> None:
    inputs: Ports = {"input_ids": (I64, ["b", "s"]), "flavour": (I64, [3])}
    cache: Ports = {f"past.0.{part}": (F32, ["b", 2, "p", 8]) for part in ("key", "value")}
    presents: Ports = {f"present.0.{part}": (F32, ["b", 2, "t", 8]) for part in ("key", "value")}
    _ports(tmp_path, "model.onnx", {**inputs, **cache}, {"logits": (F32, ["b", "s", 40]), **presents})
    assert "stages[0].body[0].inputs.flavour" in _asked(write_draft(tmp_path, name="found"))


def test_a_metadata_file_is_never_written_over_without_force(tmp_path: Path) -> None:
    _without_metadata(tmp_path, "kv")
    (tmp_path / METADATA_FILE).write_text("mine")
    with pytest.raises(ImportModelError, match="is there already") as caught:
        write_draft(tmp_path, name="found")
    assert "--force" in caught.value.hint
    assert (tmp_path / METADATA_FILE).read_text() == "mine"
    write_draft(tmp_path, name="found", force=True)
    assert gp.validate(tmp_path)[1] == ()


def test_a_folder_without_graphs_or_with_a_damaged_one_is_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match="has no ONNX files"):
        write_draft(tmp_path, name="found")
    (tmp_path / "model.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ImportModelError):
        write_draft(tmp_path, name="found")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx"]


def test_names_of_ports_cannot_break_the_file(tmp_path: Path, ports: Callable[[], list[str]]) -> None:
    names = ports()
    inputs: Ports = {name: (F32, ["b", "t", 4 + index]) for index, name in enumerate(names)}
    _ports(tmp_path, "model.onnx", inputs, {"y: {}\n#": (F32, ["b", 3])})
    write_draft(tmp_path, name="found")
    assert {p.code for p in gp.validate(tmp_path)[1]} <= {"draft.todo"}


@pytest.fixture
def ports() -> Callable[[], list[str]]:
    """Names that mean something to YAML."""
    return lambda: ["true", "a: b", "x]", "# c", "line\nend", "prompt", "1st"]

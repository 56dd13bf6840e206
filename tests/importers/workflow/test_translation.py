"""Encoder-decoders of text: a decoder that computes cross attention anew in each run, and what the files must say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import genai_pipeline as gp
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.workflow import import_workflow
from genai_pipeline.importers.workflow.translation import CONTEXT
from genai_pipeline.metadata.load import METADATA_FILE
from genai_pipeline.testing.packages import TinyPackage, metadata_text, write_package

COUNT = 12
WORDS = ("hello", "one two", "yes no yes no", "x")


def _anew(file: Path) -> None:
    """A decoder of captured caches, made to compute them in every run and to read none, as some exporters write it."""
    model = onnx.load(file)
    graph = model.graph
    unread = {port.name for port in graph.input if port.name.startswith("cross_key_values")}
    for node in graph.node:
        if node.op_type == "Concat" and node.input[0] in unread:
            node.CopyFrom(helper.make_node("Identity", [node.input[1]], node.output))
        elif node.op_type == "Greater":
            node.op_type = "Less"  # no position is below 0: the states are read alike in every run
    kept = [port for port in graph.output if not port.name.startswith("cross.")]
    del graph.output[:]
    graph.output.extend(kept)
    onnx.save(model, str(file))


def _learnt(file: Path, rows: int) -> None:
    """Give a decoder a table that its positions pick rows of."""
    model = onnx.load(file)
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.zeros((rows, 1), np.float32), "table"))
    graph.initializer.extend(
        numpy_helper.from_array(np.array(number, np.int64), name) for name, number in (("nought", 0), ("unit", 1))
    )
    graph.node.append(helper.make_node("Size", ["input_ids"], ["count"]))
    graph.node.append(helper.make_node("Range", ["nought", "count", "unit"], ["where"]))
    graph.node.append(helper.make_node("Add", ["where", "unit"], ["shifted"]))
    graph.node.append(helper.make_node("Gather", ["table", "shifted"], ["picked"]))
    onnx.save(model, str(file))


class Source:
    """A folder as an exporter leaves it, with or without the model's own files."""

    def __init__(self, folder: Path) -> None:
        self.package: TinyPackage = write_package(
            folder, "cross", update="append", captured=True, context_length=CONTEXT
        )
        self.path = self.package.path
        _anew(self.path / "model.onnx")
        once = {"kind": "single_pass", "model": "encoder"}
        steps = {"kind": "autoregressive", "decoder": "decoder"}
        self.document: dict[str, Any] = {
            "model": {"attention": {"type": "multi_head"}},
            "pipeline": {
                "models": {"encoder": {"filename": "encoder.onnx"}, "decoder": {"filename": "model.onnx"}},
                "dataflow": [{"from": "encoder.encoder_out", "to": "decoder.source_states"}],
                "strategy": {"kind": "composite", "stages": [{"strategy": once}, {"strategy": steps}]},
            },
        }

    def write(self, **said: Any) -> Path:
        """Write the document, and the settings of answers if there are any."""
        (self.path / METADATA_FILE).write_text(metadata_text(self.document), encoding="utf-8")
        if said:
            (self.path / "generation_config.json").write_text(json.dumps(said))
        return self.path

    @property
    def said(self) -> dict[str, Any]:
        """Start and ends of the closed form."""
        return {
            "decoder_start_token_id": self.package.vocabulary.id("<s>"),
            "eos_token_id": list(self.package.end_ids),
        }


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "source")


def _prompts(package: TinyPackage) -> list[list[int]]:
    return [package.vocabulary.chat_prompt(("user", text)) for text in WORDS]


def test_a_cache_that_no_node_reads_changes_no_token(tmp_path: Path, source: Source) -> None:
    import_workflow(source.write(**source.said), tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    prompts = _prompts(source.package)
    with gp.load(tmp_path / "made") as pipe:
        streams = [pipe.stream(tokens=prompt, max_new_tokens=COUNT) for prompt in prompts]
        found = [[event.token for event in stream if event.token is not None] for stream in streams]
    ends = source.package.end_ids
    assert [[token for token in tokens if token not in ends] for tokens in found] == [
        source.package.answer(prompt, COUNT) for prompt in prompts
    ]


def test_an_edge_may_name_its_value_by_the_port_that_takes_it(tmp_path: Path, source: Source) -> None:
    report = import_workflow(source.write(**source.said), tmp_path / "made")
    assert "pipeline.dataflow[0].from -> encoder.source_states" in report.text()


def test_the_start_token_is_asked_for_by_the_file_that_has_it(tmp_path: Path, source: Source) -> None:
    with pytest.raises(ImportRefusedError) as caught:
        import_workflow(source.write(), tmp_path / "made")
    assert "decoder_start_token_id: missing" in str(caught.value)
    assert "generation_config.json or config.json" in (caught.value.hint or "")
    assert not (tmp_path / "made").exists()


def test_a_bound_that_nothing_gives_is_a_choice_that_is_told(tmp_path: Path, source: Source) -> None:
    report = import_workflow(source.write(**source.said), tmp_path / "made")
    assert f"limits.context_length: {CONTEXT}, by choice" in report.text()
    assert f"context_length: {CONTEXT}" in (tmp_path / "made" / METADATA_FILE).read_text()


def test_a_table_of_positions_is_a_bound_that_must_be_said(tmp_path: Path, source: Source) -> None:
    _learnt(source.path / "model.onnx", 130)
    with pytest.raises(ImportRefusedError, match="how many tokens does the model take"):
        import_workflow(source.write(**source.said), tmp_path / "made")
    source.document["model"]["max_sequence_length"] = 128
    import_workflow(source.write(**source.said), tmp_path / "made")
    assert "context_length: 128" in (tmp_path / "made" / METADATA_FILE).read_text()


def test_settings_of_answers_become_defaults_or_stop_the_import(tmp_path: Path, source: Source) -> None:
    said = {**source.said, "max_length": 9, "forced_bos_token_id": 5, "repetition_penalty": 1.5}
    import_workflow(source.write(**said), tmp_path / "made")
    text = (tmp_path / "made" / METADATA_FILE).read_text()
    for part in ("max_new_tokens: 8", "forced_token_ids: [5]", "repetition_penalty: 1.5", "temperature: 0"):
        assert part in text
    with pytest.raises(ImportRefusedError, match="encoder_repetition_penalty"):
        import_workflow(source.write(**said, encoder_repetition_penalty=1.2), tmp_path / "other")


def test_tokens_that_are_never_chosen_or_never_first_are_kept(tmp_path: Path, source: Source) -> None:
    (prompt, *_) = _prompts(source.package)
    first, second = source.package.answer(prompt, 2)
    report = import_workflow(source.write(**source.said, begin_suppress_tokens=[first]), tmp_path / "begins")
    assert "begin_suppress_tokens -> the loop's begin_suppress" in report.text()
    with gp.load(tmp_path / "begins") as pipe:
        assert pipe.generate(tokens=prompt, max_new_tokens=1).tokens[0] != first
    import_workflow(source.write(**source.said, suppress_tokens=[second]), tmp_path / "never")
    with gp.load(tmp_path / "never") as pipe:
        tokens = pipe.generate(tokens=prompt, max_new_tokens=4).tokens
    assert tokens[0] == first
    assert second not in tokens
    said = {**source.said, "forced_bos_token_id": 5, "begin_suppress_tokens": [first]}
    with pytest.raises(ImportRefusedError, match="counts from the token after forced_bos_token_id"):
        import_workflow(source.write(**said), tmp_path / "forced")

"""Source folders: bounded JSON, files inside only, links instead of copies; values with their places; reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from genai_pipeline.errors import ImportModelError, ImportRefusedError
from genai_pipeline.importers import source_folder
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder, link_file
from genai_pipeline.testing import write_package


def node(value: object) -> ConfigNode:
    return ConfigNode("config.json", "", value)


@pytest.mark.parametrize(
    ("missing", "there", "hint"),
    [
        (
            "config.json",
            ["tokenizer.json", "generation_config.json"],
            "there are generation_config.json, tokenizer.json",
        ),
        ("tokenizer.json", ["config.json", "tokenizer_config.json"], "there are config.json, tokenizer_config.json"),
        ("genai_config.json", ["config.json"], "there are config.json"),
        ("config.json", ["confg.json", "tokenizer.json"], "did you mean 'confg.json'?"),
        ("config.json", ["config.yaml"], "there are config.yaml"),
        ("model.onnx", ["modle.onnx", "model.onnx.data"], "did you mean 'modle.onnx'?"),
        ("config.json", [], "the folder is empty"),
    ],
)
def test_only_a_misspelling_is_meant_for_a_missing_file(
    tmp_path: Path, missing: str, there: list[str], hint: str
) -> None:
    for name in there:
        (tmp_path / name).write_text("")
    with pytest.raises(ImportModelError) as refused:
        SourceFolder(tmp_path).need(missing, "it is needed")
    assert refused.value.hint == hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "allowed: a mapping"),
        ("{,}", "is not JSON: line 1, column 2"),
        ('{"a": 1, "a": 2}', "the key 'a' is there twice"),
        ('{"a": NaN}', "the number NaN"),
        ('{"a":' * 100000, "nested too deeply"),
    ],
)
def test_json_that_is_none_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ImportModelError) as caught:
        SourceFolder(tmp_path).json("config.json")
    assert words in caught.value.message


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_folder, "CONFIG_BYTES", 3)
    (tmp_path / "config.json").write_text("{   }")
    with pytest.raises(ImportModelError, match="has 5 bytes"):
        SourceFolder(tmp_path).json("config.json")


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{\xff}")
    with pytest.raises(ImportModelError, match="not UTF-8 text: byte 1"):
        SourceFolder(tmp_path).json("config.json")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link", "folder", "absent"])
def test_files_outside_and_what_is_no_file_are_refused(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "inside"
    (inside / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_text("{}")
    (inside / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ImportModelError):
        SourceFolder(inside).file(name)


def test_a_source_that_is_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match="does not exist"):
        SourceFolder(tmp_path / "absent")


def test_a_missing_file_is_named_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.jsn").touch()
    with pytest.raises(ImportModelError) as caught:
        SourceFolder(tmp_path).need("tokenizer.json", "it turns text into tokens")
    assert "it turns text into tokens" in caught.value.message
    assert "tokenizer.jsn" in caught.value.hint


def test_onnx_files_are_found_in_inner_folders(tmp_path: Path) -> None:
    for name in ("b.onnx", "onnx/a.onnx", ".hidden/c.onnx", "d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert SourceFolder(tmp_path).onnx_files() == ("b.onnx", "onnx/a.onnx")


def test_a_graph_comes_with_its_weights(tmp_path: Path) -> None:
    package = write_package(tmp_path / "source", external_data=True)
    folder = SourceFolder(package.path)
    assert folder.weights("model.onnx") == ("model.onnx.data",)
    assert "input_ids" in folder.signature("model.onnx").inputs
    (tmp_path / "made").mkdir()
    folder.link_graph("model.onnx", tmp_path / "made")
    assert (tmp_path / "made" / "model.onnx.data").samefile(package.path / "model.onnx.data")


def test_weights_outside_are_refused_before_they_are_opened(tmp_path: Path) -> None:
    package = write_package(tmp_path / "source", external_data=True)
    (package.path / "model.onnx.data").rename(tmp_path / "elsewhere")
    (package.path / "model.onnx.data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ImportModelError, match="lies outside"):
        SourceFolder(package.path).weights("model.onnx")


def test_a_file_is_copied_where_it_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError("another file system")

    monkeypatch.setattr("os.link", no_links)
    (tmp_path / "a").write_text("weights")
    link_file(tmp_path / "a", tmp_path / "inner" / "b")
    assert (tmp_path / "inner" / "b").read_text() == "weights"


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda root: root.need("modle"), "the key 'modle' is missing"),
        (lambda root: root.mapping("model").integer("size"), 'model.size is "big"; allowed: an integer'),
        (lambda root: root.mapping("model").integer("flag"), "model.flag is true"),
        (lambda root: root.mapping("model").integer("layers", least=9), "model.layers is 2; allowed: an integer of at"),
        (lambda root: root.mapping("model").number("size"), "allowed: a number"),
        (lambda root: root.mapping("model").boolean("layers", True), "allowed: true or false"),
        (lambda root: root.mapping("model").integers("ends"), "allowed: an integer or a list"),
        (lambda root: root.mapping("model").choice("size", ("small", "bigger")), "allowed: bigger, small"),
        (lambda root: root.mapping("model").text("layers"), "allowed: a string, not empty"),
        (lambda root: root.mapping("model").mapping("layers"), "allowed: a mapping"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(read: Callable[[ConfigNode], object], words: str) -> None:
    root = node({"model": {"size": "big", "layers": 2, "flag": True, "ends": [1, "x"]}})
    with pytest.raises(ImportModelError) as caught:
        read(root)
    assert words in caught.value.message


def test_null_counts_as_absent() -> None:
    root = node({"a": None, "b": [3, 4], "c": 5})
    assert (root.integer("a", 7), root.integers("b"), root.integers("c"), root.integers("a")) == (7, (3, 4), (5,), ())


def test_a_row_about_a_mapping_covers_all_of_it() -> None:
    root = node({"a": {"b": 1, "c": {"d": 2}}, "e": [1]})
    report = ImportReport()
    report.mapped("config.json", "a.c", "there")
    assert [leaf.path for leaf in report.uncovered(root)] == ["a.b", "e"]


def test_refusals_are_listed_together_and_kept_out_of_the_package(tmp_path: Path) -> None:
    report = ImportReport()
    report.mapped("config.json", "a", "there")
    report.refused("config.json", "b", "cannot be said", "leave it out")
    report.refused("graph.onnx", "", "is odd", "leave it out")
    with pytest.raises(ImportRefusedError) as caught:
        report.check("the folder")
    assert caught.value.message.splitlines()[1:] == ["  config.json: b: cannot be said", "  graph.onnx: is odd"]
    assert caught.value.hint == "leave it out"
    assert [row["key"] for row in caught.value.to_dict()["refused"]] == ["b", ""]


def test_a_report_is_kept_as_json(tmp_path: Path) -> None:
    report = ImportReport()
    report.dropped("config.json", "b", "nothing depends on it")
    report.mapped("config.json", "a", "there")
    report.check("the folder")
    report.write(tmp_path)
    assert [row["key"] for row in json.loads((tmp_path / "import_report.json").read_text())["rows"]] == ["b", "a"]
    assert report.text() == "config.json: a -> there\nconfig.json: b dropped: nothing depends on it\n"

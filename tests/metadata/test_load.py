"""Finding and loading: folders, files, links, and what is neither."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.errors import PackageNotFoundError
from genai_pipeline.metadata.load import METADATA_FILE, find_metadata, load_package

MINIMAL = (
    'schema_version: "1"\nname: a\ninputs: {x: {modality: tensor}}\noutputs: {y: {modality: tensor, value: y}}\n'
    "components: {m: {model: m.onnx}}\nstages: [{run: m, inputs: {x: x.values}, outputs: {y: y}}]\n"
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "package"
    root.mkdir()
    (root / METADATA_FILE).write_text(MINIMAL)
    (root / "m.onnx").touch()
    return root


def test_a_folder_and_its_file_are_the_same_package(package: Path) -> None:
    for path in (package, package / METADATA_FILE, str(package)):
        assert find_metadata(path) == package / METADATA_FILE
        spec, problems = load_package(path)
        assert problems == ()
        assert spec is not None
        assert spec.root == package.resolve()


def test_a_metadata_file_of_another_name(package: Path) -> None:
    (package / METADATA_FILE).rename(package / "other.yaml")
    assert load_package(package / "other.yaml")[1] == ()
    with pytest.raises(PackageNotFoundError):
        find_metadata(package)


def test_what_is_not_there(package: Path) -> None:
    (package / METADATA_FILE).rename(package / "inference_metadata.yml")
    with pytest.raises(PackageNotFoundError) as caught:
        find_metadata(package)
    assert caught.value.hint == "did you mean 'inference_metadata.yml'?"
    for path in (package, package / "absent", "a" * 5000, "a\0b"):
        spec, problems = load_package(path)
        assert spec is None
        assert [(p.code, p.at.line) for p in problems] == [("path.missing", 0)]


def test_devices_and_links_out_are_not_read(package: Path) -> None:
    (package / METADATA_FILE).unlink()
    os.mkfifo(package / METADATA_FILE)
    assert [p.code for p in load_package(package)[1]] == ["path.not_a_file"]
    (package / METADATA_FILE).unlink()
    (package / METADATA_FILE).symlink_to("/etc/passwd")
    assert [p.code for p in load_package(package)[1]] == ["path.outside"]
    (package / METADATA_FILE).unlink()
    (package / METADATA_FILE).symlink_to("nowhere")
    assert [p.code for p in load_package(package)[1]] == ["path.missing"]


def test_an_honest_hub_cache_loads(tmp_path: Path) -> None:
    blobs = tmp_path / "models--org--name" / "blobs"
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "11").write_text(MINIMAL)
    (blobs / "22").touch()
    (snapshot / METADATA_FILE).symlink_to("../../blobs/11")
    (snapshot / "m.onnx").symlink_to("../../blobs/22")
    spec, problems = load_package(snapshot)
    assert problems == ()
    assert spec is not None
    assert spec.root == snapshot.resolve()
    assert spec.at.file == str(snapshot / METADATA_FILE)


def test_problems_are_sorted_and_name_the_file_as_given(load: Callable[[str], Any], tmp_path: Path) -> None:
    _, problems = load(MINIMAL.replace("name: a", "name: a\nfoo: 1").replace("run: m", "run: n"))
    assert [p.at.line for p in problems] == sorted(p.at.line for p in problems)
    assert {p.at.file for p in problems} == {str(tmp_path / METADATA_FILE)}


def test_a_package_with_harmless_faults_goes_on_to_the_next_layers(load: Callable[[str], Any]) -> None:
    spec, problems = load(MINIMAL.replace("name: a", "name: a\nsumary: text"))
    assert [p.code for p in problems] == ["schema.unknown_field"]
    assert spec is not None
    assert spec.summary == "text"


def test_importing_the_package_imports_no_yaml_or_jsonschema() -> None:
    code = (
        "import sys, genai_pipeline.metadata.model, genai_pipeline.metadata.schema; print('jsonschema' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

"""Packages for metadata tests: text in, what ``load_package`` says out. Files exist but hold nothing of sense."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from genai_pipeline.metadata.load import METADATA_FILE, load_package
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.yaml_reader import read_text
from genai_pipeline.problems import Problem

EXAMPLES = Path(__file__).parent / "examples"
FILE_NAME = re.compile(r"[\w./-]+\.(?:onnx|json|npy|npz|jinja|safetensors|bin)\b")

Loaded = tuple[PackageSpec | None, tuple[Problem, ...]]


def _touch_named_files(folder: Path, text: str) -> None:
    """Create every file that the text names by something like a file name, unless it would lie outside."""
    for name in FILE_NAME.findall(text):
        if not name.startswith("/") and ".." not in name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Loaded]:
    """``load(text)``: a package of that metadata, with every file it names, loaded."""

    def run(text: str) -> Loaded:
        (tmp_path / METADATA_FILE).write_text(text, encoding="utf-8")
        _touch_named_files(tmp_path, text)
        return load_package(tmp_path)

    return run


@pytest.fixture
def spec(load: Callable[[str], Loaded]) -> Callable[[str], PackageSpec]:
    """``spec(text)``: the package of metadata that must have no problem."""

    def run(text: str) -> PackageSpec:
        loaded, problems = load(text)
        assert problems == ()
        assert loaded is not None
        return loaded

    return run


@pytest.fixture
def node() -> Callable[[str], Node]:
    """``node(text)``: the tree of a YAML text that must have no problem."""

    def run(text: str) -> Node:
        root, problems = read_text(text, "file.yaml")
        assert problems == []
        assert root is not None
        return root

    return run


@pytest.fixture
def example() -> Callable[[str], str]:
    """``example(name)``: the text of one of the example files."""
    return lambda name: (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")

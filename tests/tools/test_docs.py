"""docs/errors.md names every error class and every problem code that the package can report, and no other."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import genai_pipeline.errors
from genai_pipeline.errors import GenaiError
from genai_pipeline.graph.capabilities import SUPPORTED
from genai_pipeline.metadata.capabilities import CAPABILITIES

ROOT = Path(__file__).resolve().parents[2]
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
DOCUMENTED = set(re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", ERRORS, re.MULTILINE))


def test_every_error_class_is_listed_with_its_code_and_exit_code() -> None:
    listed = set(re.findall(r"^\| [· ]*`(\w+)` \| `(\w+)` \| (\d+) \|", ERRORS, re.MULTILINE))
    classes = [value for value in vars(genai_pipeline.errors).values() if isinstance(value, type)]
    assert listed == {
        (error.__name__, error.code, str(error.exit_code)) for error in classes if issubclass(error, GenaiError)
    }


def test_every_code_that_invalid_packages_give_is_documented() -> None:
    expected = [json.loads(file.read_text()) for file in (ROOT / "tests" / "packages").rglob("expected.json")]
    assert expected
    assert set(_codes(expected)) <= DOCUMENTED


def test_every_code_in_the_source_is_documented() -> None:
    kinds = {code.split(".")[0] for code in DOCUMENTED}
    found = {text for text in _strings() if re.fullmatch(rf"({'|'.join(kinds)})\.[a-z_]+", text)}
    no_codes = {*CAPABILITIES, *SUPPORTED, "tokenizer.json", "model.onnx", "model.bin", "reference.json"}
    assert found - no_codes <= DOCUMENTED


def _codes(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (str(value["code"]),) if "code" in value else ()
        for inner in value.values():
            yield from _codes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _codes(inner)


def _strings() -> Iterator[str]:
    package = ROOT / "genai_pipeline"
    foreign = {*package.glob("importers/*/**/*.py"), *package.glob("server/**/*.py")}  # keys of other formats there
    for file in set(package.rglob("*.py")) - foreign:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value

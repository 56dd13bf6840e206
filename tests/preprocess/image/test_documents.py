"""docs/image_programs.md says what the code does: its programs, steps, parameters and defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from genai_pipeline.metadata.call_parameters import REQUIRED
from genai_pipeline.preprocess.image.resize import TAKES
from genai_pipeline.preprocess.image.steps import KIT

TEXT = (Path(__file__).parents[3] / "docs" / "image_programs.md").read_text()
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.yaml"))
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_are_those_that_are_tested(path: Path) -> None:
    assert path.read_text() in BLOCKS


def test_every_program_is_shown() -> None:
    assert len(PROGRAMS) == 5
    assert len(BLOCKS) == 1 + len(PROGRAMS)


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_steps_parameters_and_defaults() -> None:
    found: dict[str, dict[str, str]] = {}
    step = ""
    for first, _, parameters, default, _ in rows("Steps"):
        step = (words(first) or [step])[0]
        found.setdefault(step, {}).update(dict.fromkeys(words(parameters), default.strip("`")))
    expected = {
        name: {
            key: "" if value.default is REQUIRED else "-" if value.default is None else str(value.default)
            for key, value in step.parameters.items()
        }
        for name, step in KIT.steps.items()
    }
    assert found == expected


def test_fits() -> None:
    found = {
        words(fit)[0]: (frozenset(words(must)), frozenset(words(may))) for fit, must, may, _ in rows("Ways to fit")
    }
    assert found == dict(TAKES)


def test_published_fields() -> None:
    found = {
        (words(step)[0], words(value)[0].removeprefix("images."))
        for value, _, _, step in rows("What a program publishes")
    }
    assert found == {(step.name, field) for step in KIT.steps.values() for field in step.publishes}


def test_programs_named_in_the_text_are_valid() -> None:
    spans = [
        span
        for span in re.findall(r"`([a-z]+: \{[^`]*\})`", TEXT.replace("\n", " "))
        if span.split(":")[0] in KIT.steps
    ]
    assert len(spans) >= 7
    for span in spans:
        (name, params) = next(iter(yaml.safe_load(span).items()))
        step = KIT.steps[name]
        assert set(params) <= set(step.parameters)
        defaults = {key: value.default for key, value in step.parameters.items()}
        assert list(step.check({**defaults, **params})) == [], span

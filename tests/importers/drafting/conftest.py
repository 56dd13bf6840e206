"""Drafts answered as people do: a value in place of each question, a field that asks taken away."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from genai_pipeline.importers.drafting import Draft
from genai_pipeline.metadata.drafts import FIELD


def answered(draft: Draft, answers: Mapping[str, str], more: str = "") -> None:
    """Write answers in place of the questions, by their paths; every question needs one. ``more`` is appended."""
    assert {question.at.path for question in draft.questions} == set(answers)
    lines = draft.file.read_text().split("\n")
    for question in reversed(draft.questions):  # the last one of a line first
        line, column = question.at.line - 1, question.at.column - 1
        if question.at.path.startswith(f"{FIELD}["):
            lines[line] = ""
            continue
        before, rest = lines[line][:column], lines[line][column:]
        (asked, *_) = re.findall(r'"TODO:[^"]*"', rest)
        lines[line] = before + rest.replace(asked, answers[question.at.path], 1)
    draft.file.write_text("\n".join(lines) + more)


@pytest.fixture
def answer() -> Callable[..., None]:
    """``answer(draft, {path: text}, more="")``."""
    return answered

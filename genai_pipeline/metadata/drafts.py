"""Open questions of a draft: what ``genai-pipeline init`` could not tell from the graphs is marked, and keeps the
package from loading until somebody has answered it.

A question is a value that starts with ``TODO:``, or the text of a field ``x-todo`` beside what is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from genai_pipeline.metadata.nodes import Node
from genai_pipeline.problems import Problem

MARK: Final = "TODO:"
FIELD: Final = "x-todo"
_CODE: Final = "draft.todo"


def open_questions(root: Node) -> tuple[Problem, ...]:
    """One error for every open question of a document, at its place."""
    return tuple(_questions(root))


def without_answers(problems: Iterable[Problem], questions: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems less those that only say that an open question is no answer: they lie at its place."""
    open_paths = {question.at.path for question in questions if not _is_note(question)}
    return tuple(problem for problem in problems if open_paths.isdisjoint(_around(problem.at.path)))


def unanswered(questions: Iterable[Problem]) -> bool:
    """Whether a value is missing, so that the layers that follow have nothing to check."""
    return any(not _is_note(question) for question in questions)


def _questions(root: Node) -> Iterator[Problem]:
    for node in root.walk():
        if node.named_at.path.rpartition(".")[2] == FIELD:
            for item in node.items or (node,):
                yield _question(item, "answer it in the fields beside it and take x-todo away")
        elif isinstance(node.value, str) and node.value.startswith(MARK) and not _below_field(node):
            yield _question(node, "write the right value in its place")


def _question(node: Node, hint: str) -> Problem:
    text = str(node.value).removeprefix(MARK).strip() or "?"
    return Problem(node.named_at, _CODE, f"still open: {text}", hint)


def _is_note(question: Problem) -> bool:
    return f".{FIELD}" in f".{question.at.path}"


def _below_field(node: Node) -> bool:
    return f".{FIELD}[" in f".{node.named_at.path}"


def _around(path: str) -> Iterator[str]:
    """The path and those of what holds it."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]

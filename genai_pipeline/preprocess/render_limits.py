"""Bounds of one template render, so that no template can hang the process or fill its memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from genai_pipeline.errors import TemplateError

_MAX_COUNT = 1_000_000  # the largest number a text method or padding filter may be given; the longest list made
_MAX_BITS = 4096
_WIDE = re.compile(r"\d{5,}|\*")
_HINT = "shorten the conversation, or mend the template"


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Bounds of one render: loop rounds and macro calls, characters of any one text, seconds."""

    steps: int = 1_000_000
    characters: int = 16_000_000
    seconds: float = 10.0


class Meter:
    """Counts one render against its limits; every method raises TemplateError when a limit is passed."""

    def __init__(self, limits: RenderLimits) -> None:
        self._limits = limits
        self._steps = 0
        self._deadline = time.monotonic() + limits.seconds

    def step(self) -> None:
        """Count a loop round or a macro call."""
        self._steps += 1
        if self._steps > self._limits.steps:
            raise _over(f"runs more than {self._limits.steps} loop rounds and macro calls")
        if self._steps % 64 == 0 and time.monotonic() > self._deadline:
            raise _over(f"runs longer than {self._limits.seconds:g} seconds")

    def size(self, characters: int) -> None:
        """Refuse a text that is too long."""
        if characters > self._limits.characters:
            raise _over(f"makes a text of more than {self._limits.characters} characters")

    def operation(self, operator: str, left: Any, right: Any) -> None:
        """Refuse an arithmetic operation whose result would be too large to make."""
        if operator == "+":
            self._sum(left, right)
        elif operator == "*":
            self._product(left, right)
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int) and abs(right) * left.bit_length() > _MAX_BITS:
                raise _over("computes a number that is too large")
        elif isinstance(left, str):
            check_format(left)

    def _sum(self, left: Any, right: Any) -> None:
        if isinstance(left, str) and isinstance(right, str):
            self.size(len(left) + len(right))
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            check_counts([len(left) + len(right)])

    def _product(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int):
            if left.bit_length() + right.bit_length() > _MAX_BITS:
                raise _over("computes a number that is too large")
            return
        for many, count in ((left, right), (right, left)):
            if isinstance(many, str) and isinstance(count, int):
                self.size(len(many) * count)
            elif isinstance(many, (list, tuple)) and isinstance(count, int):
                check_counts([len(many) * count])


METER: ContextVar[Meter] = ContextVar("chat_template_meter")  # of the render that is running


def check_counts(values: Iterable[Any]) -> None:
    """Refuse numbers that would keep a text method or filter busy without end."""
    for value in values:
        if isinstance(value, int) and abs(value) > _MAX_COUNT:
            raise _over(f"asks for {value} characters or items; at most {_MAX_COUNT}")


def check_format(template: str) -> None:
    """Refuse a ``%`` or ``format`` text with a width of five or more digits, or a width taken from an argument."""
    specs = re.findall(r"%[^a-zA-Z]*|\{[^{}]*:[^}]*", template)
    if any(_WIDE.search(spec) for spec in specs):
        raise _over("uses a format width that is too large")


def _over(what: str) -> TemplateError:
    return TemplateError(f"the chat template {what}", hint=_HINT)

"""Bounds of one template render, so that no template can hang the process or fill its memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from genai_pipeline.errors import TemplateError
from genai_pipeline.problems import shown

_MAX_COUNT = 1_000_000  # the largest number a text method or padding filter may be given; the longest list made
_MAX_BITS = 4096
_MAX_JSON_SPACE = 64
_SPEC = re.compile(r"%[^a-zA-Z]*|\{[^{}]*")
_WIDE = re.compile(r"[:%.0-9]\d{4,}|\*|:[^}]*\{")
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

    @property
    def budget(self) -> int:
        """The most characters a text may have."""
        return self._limits.characters

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
            self.format(left, right)

    def method(self, text: str, name: str, args: Sequence[Any]) -> None:
        """Refuse a call of a text method whose result would be too long."""
        check_counts(args)
        if name in ("format", "format_map"):
            self.format(text, args)
        elif name == "translate":
            self.size(len(text) * max(1, _longest(args)))
        elif name == "expandtabs":
            self.size(len(text) + text.count("\t") * (args[0] if args and isinstance(args[0], int) else 8))

    def format(self, template: str, values: Any) -> None:
        """Refuse a ``%`` or ``format`` text with a width of five or more digits or taken from an argument."""
        specs = _SPEC.findall(template)
        if any(_WIDE.search(spec) for spec in specs):
            raise _over("uses a format width that is too large")
        self.size(len(template) + len(specs) * max(9999 if specs else 0, _longest(values)))

    def indent(self, text: str, width: Any = 4) -> None:
        """Refuse an indentation that would make the text too long."""
        self.size(len(text) + (text.count("\n") + 2) * (width if isinstance(width, int) else len(str(width))))

    def json(self, indent: Any, separators: Any) -> None:
        """Refuse JSON whose white space would dwarf its content."""
        for value in (indent, *(separators or ())):
            if (value if isinstance(value, int) else len(str(value))) > _MAX_JSON_SPACE:
                raise _over("asks for JSON with separators or an indent that are too long")

    def total(self, values: Any, start: Any) -> None:
        """Refuse a sum of lists that would be too long."""
        if isinstance(start, (list, tuple)) and isinstance(values, (list, tuple)):
            check_counts([sum(len(value) for value in values if isinstance(value, (list, tuple)))])

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


def check_size(characters: int) -> None:
    """Refuse a text that is too long for the render that is running, if one is."""
    meter = METER.get(None)
    if meter is not None:
        meter.size(characters)


def check_counts(values: Iterable[Any]) -> None:
    """Refuse numbers that would keep a text method or filter busy without end."""
    for value in values:
        if isinstance(value, int) and abs(value) > _MAX_COUNT:
            raise _over(f"asks for {shown(value)} characters or items; at most {_MAX_COUNT}")


def check_data(value: Any) -> None:
    """Refuse structured data that would make too long a text when written out; it may hold one list many times."""
    budget = METER.get().budget
    waiting = [value]
    while waiting and budget >= 0:
        item = waiting.pop()
        if isinstance(item, Mapping):
            waiting.extend(item.values())
            budget -= sum(map(len, filter(_is_text, item)))
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)
        budget -= len(item) if isinstance(item, str) else 1
    if budget < 0:
        raise _over("writes out data that is too long")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _longest(values: Any) -> int:
    """Length of the longest text among arguments; structured data must pass ``check_data``."""
    items = list(values.values()) if isinstance(values, Mapping) else values
    if not isinstance(items, (list, tuple)):
        items = [items]
    longest = 0
    for item in items:
        if isinstance(item, (Mapping, list, tuple)):
            check_data(item)
        longest = max(longest, len(str(item)))
    return longest


def _over(what: str) -> TemplateError:
    return TemplateError(f"the chat template {what}", hint=_HINT)

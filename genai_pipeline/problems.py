"""Problems found in a package: where, what, what is allowed, and what was probably meant."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

SHOWN: Final = 200  # characters of a caller's value that a message repeats
_MOST_BITS: Final = 128  # of a whole number that is written out

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file: ``line`` and ``column`` count from 1 (0: the file as a whole), ``path`` is the YAML path."""

    file: str
    line: int = 0
    column: int = 0
    path: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding about a package; ``code`` is stable and documented in docs/errors.md."""

    at: Location
    code: str
    message: str
    hint: str = ""
    severity: Severity = "error"

    def to_dict(self) -> dict[str, Any]:
        """The problem as the fields of ``validate --format json``."""
        return {
            "file": self.at.file,
            "line": self.at.line,
            "column": self.at.column,
            "path": self.at.path,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "severity": self.severity,
        }


class Problems:
    """Collects problems across layers; the only mutable object that checks share."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def error(self, at: Location, code: str, message: str, hint: str = "") -> None:
        """Record something that makes the package unusable."""
        self._found.append(Problem(at, code, message, hint, "error"))

    def warning(self, at: Location, code: str, message: str, hint: str = "") -> None:
        """Record something that is probably a mistake but changes no answer."""
        self._found.append(Problem(at, code, message, hint, "warning"))

    def note(self, at: Location, code: str, message: str, hint: str = "") -> None:
        """Record something worth knowing."""
        self._found.append(Problem(at, code, message, hint, "note"))

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems found elsewhere."""
        self._found.extend(problems)

    @property
    def failed(self) -> bool:
        """Whether any problem is an error."""
        return any(problem.severity == "error" for problem in self._found)

    def sorted(self) -> tuple[Problem, ...]:
        """All problems in file and line order, duplicates removed."""
        return sort_problems(self._found)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def sort_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems in file and line order, duplicates removed."""
    unique = dict.fromkeys(problems)
    return tuple(sorted(unique, key=lambda p: (p.at.file, p.at.line, p.at.column, p.at.path, p.code)))


def folded(problems: Iterable[Problem], what: str) -> Iterator[Problem]:
    """One problem for all with the same place and code, which have one cause; the others are counted as ``what``+s."""
    groups: dict[tuple[Location, str], list[Problem]] = {}
    for problem in dict.fromkeys(problems):
        groups.setdefault((problem.at, problem.code), []).append(problem)
    for first, *others in groups.values():
        more = f" (and {len(others)} more {what}{'s' * (len(others) > 1)})" if others else ""
        yield replace(first, message=f"{first.message}{more}")


def nearest(word: str, allowed: Iterable[str]) -> str:
    """A hint naming the closest allowed word, or the empty string when none is close."""
    matches = difflib.get_close_matches(word, [str(item) for item in allowed], n=1, cutoff=0.6)
    return f"did you mean '{matches[0]}'?" if matches else ""


def one_of(allowed: Iterable[str], limit: int = 12) -> str:
    """The allowed words as text, cut after ``limit``."""
    words = sorted(str(item) for item in allowed)
    shown = ", ".join(words[:limit])
    return f"{shown}, ... ({len(words)} in all)" if len(words) > limit else shown


def shown(value: Any) -> str:
    """A caller's value in a message: as Python writes it, and no longer than a message should be."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of about {math.ceil(value.bit_length() * math.log10(2))} digits"
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole numbers beyond some thousand digits, wherever they stand
        return f"a {type(value).__name__} with a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."

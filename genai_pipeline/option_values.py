"""Values that callers give as options: numbers of Python or numpy, named in messages the same way everywhere."""

from __future__ import annotations

import math
import operator
import os
from numbers import Real
from typing import Any, Final

from genai_pipeline.errors import OptionError
from genai_pipeline.problems import shown

LARGEST: Final = 2**63 - 1  # of whole numbers without a bound of their own: what 64 bits hold


def as_integer(value: Any) -> int | None:
    """The value as an int if it is an integer of any library, None for everything else, truth values too."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def as_number(value: Any) -> float | None:
    """The value as an int or float if it is a real number of any library, None for everything else.

    Numbers beyond what a float holds are infinite, whole ones too: every other one can be computed with.
    """
    whole = as_integer(value)
    if whole is None and (isinstance(value, bool) or not isinstance(value, Real)):
        return None
    try:
        rounded = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return rounded if whole is None else whole


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """An option that must be a whole number from ``low`` to ``high``. Raises OptionError."""
    whole = as_integer(value)
    if whole is None:
        raise OptionError(f"{name} must be an integer, {_allowed(low, high)}, not {shown(value)}", param=name)
    if whole > LARGEST and high is None:
        raise OptionError(f"{name} must be {_allowed(low, LARGEST)}, not {shown(whole)}", param=name)
    if whole < low or (high is not None and whole > high):
        raise OptionError(f"{name} must be {_allowed(low, high)}, not {shown(whole)}", param=name)
    return whole


def number(name: str, value: Any, low: float, high: float | None = None, *, above: bool = False) -> float:
    """An option that must be a finite number; ``above``: greater than ``low``. Raises OptionError."""
    given = as_number(value)
    allowed = _allowed(low, high, above=above)
    if given is None:
        raise OptionError(f"{name} must be a number, {allowed}, not {shown(value)}", param=name)
    fits = given > low if above else given >= low
    if not (fits and math.isfinite(given) and (high is None or given <= high)):
        finite = "finite and " if high is None and math.isinf(given) else ""
        raise OptionError(f"{name} must be {finite}{allowed}, not {shown(value)}", param=name)
    return float(given)


def boolean(name: str, value: Any) -> bool:
    """An option that is on or off. Raises OptionError."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} must be true or false, not {shown(value)}", param=name)
    return value


def text(name: str, value: Any) -> str:
    """An option that is a text. Raises OptionError."""
    if not isinstance(value, str):
        raise OptionError(f"{name} must be a string, not {shown(value)}", param=name)
    return value


def package_path(value: Any) -> str:
    """What names a package: a path or a known name, as text. Raises OptionError."""
    named = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(named, str) and named and "\0" not in named:
        return named
    raise OptionError(
        f"a package is named by a folder, a metadata file or a known name, not by {shown(value)}",
        param="package",
        hint="genai-pipeline list shows the known names",
    )


def _allowed(low: float, high: float | None, *, above: bool = False) -> str:
    """The bounds in words; whole numbers are written out, so that a bound can be used as it stands."""
    if above:
        return f"above {_digits(low)}" + ("" if high is None else f" and at most {_digits(high)}")
    return f"at least {_digits(low)}" if high is None else f"between {_digits(low)} and {_digits(high)}"


def _digits(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"

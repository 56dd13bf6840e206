"""Values as they are written behind flags: K=V pairs, JSON, and text that may stand in a file instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from genai_pipeline.errors import OptionError

MAX_FILE_BYTES = 16 << 20


def pairs(flag: str, given: Iterable[str]) -> dict[str, Any]:
    """``K=V`` pairs as a mapping; V is a JSON value where it is one, else text. Raises OptionError."""
    return _pairs(flag, "NAME=VALUE", given, _value)


def biases(flag: str, given: Iterable[str]) -> dict[str, float]:
    """``TOKEN=VALUE`` pairs as a mapping. Raises OptionError."""

    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError as error:
            raise OptionError(f"{flag} takes TOKEN=VALUE with a number, not '{text}'", param="logit_bias") from error

    return _pairs(flag, "TOKEN=VALUE", given, number)


def text_of(flag: str, written: str) -> str:
    """The text behind a flag: what is written there, or with ``@FILE`` what the file holds. Raises OptionError."""
    return _content(flag, written[1:]) if written.startswith("@") else written


def json_of(flag: str, written: str) -> Any:
    """The JSON value behind a flag, written there or with ``@FILE`` in a file. Raises OptionError with its place."""
    text = text_of(flag, written)
    source = written[1:] if written.startswith("@") else "its value"
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        hint = (
            f"to read a file: {flag} @{written}" if text is written and Path(written[:4096]).suffix == ".json" else ""
        )
        raise OptionError(f"{flag}: {source} is not JSON: {error.msg} ({at})", param=flag, hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{flag}: {source} is not JSON that can be used: {error}", param=flag) from error


def _pairs(flag: str, shape: str, given: Iterable[str], read: Callable[[str], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise OptionError(f"{flag} takes {shape}, not '{pair}'", param=flag)
        if name in found:
            raise OptionError(f"{flag} {name} is given twice", param=name)
        found[name] = read(text)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # whole numbers of thousands of digits are read by nobody
        return text


def _content(flag: str, path: str) -> str:
    """What a file of text holds."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise OptionError(f"{flag}: {path or 'a file without a name'} cannot be read: {reason}", param=flag) from error
    if len(content) > MAX_FILE_BYTES:
        raise OptionError(f"{flag}: {path} has more than {MAX_FILE_BYTES >> 20} MiB", param=flag)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise OptionError(f"{flag}: {path} is not UTF-8 in line {line}", param=flag) from error


def _no_constant(name: str) -> Mapping[str, Any]:
    raise ValueError(f"{name} is no JSON number")

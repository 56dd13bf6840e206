"""Problems as text for people, as JSON for programs, and as annotations for a code host's workflow log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from genai_pipeline.cli.output import write, write_json

if TYPE_CHECKING:
    from genai_pipeline.problems import Problem

Report = Callable[[Sequence["Problem"], bool], None]

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}  # of the workflow log


def _text(problems: Sequence[Problem], failed: bool) -> None:
    write("".join(line + "\n" for line in text_lines(problems)))


def text_lines(problems: Iterable[Problem]) -> Iterator[str]:
    """Each problem as ``file:line:column: severity[code] at path: message``, and its hint as a line of its own."""
    for problem in problems:
        at = problem.at
        place = f"{at.file}:{at.line}:{at.column}" if at.line else at.file
        where = f" at {at.path}" if at.path else ""
        yield f"{place}: {problem.severity}[{problem.code}]{where}: {problem.message}"
        if problem.hint:
            yield f"    {problem.hint}"


def _json(problems: Sequence[Problem], failed: bool) -> None:
    write_json({"valid": not failed, "problems": [problem.to_dict() for problem in problems]})


def _github(problems: Sequence[Problem], failed: bool) -> None:
    for problem in problems:
        properties = {"file": problem.at.file}
        if problem.at.line:
            properties |= {"line": str(problem.at.line), "col": str(problem.at.column)}
        properties["title"] = problem.code
        listed = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in properties.items())
        message = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
        write(f"::{_COMMANDS[problem.severity]} {listed}::{_escaped(message)}\n")


def _escaped(text: str, more: str = "") -> str:
    """Workflow commands escape per cent signs and line ends, in properties also colons and commas."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


REPORTS: Mapping[str, Report] = {"text": _text, "json": _json, "github": _github}


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as aligned columns for a terminal, parted by tabs for programs; the first row is the widest."""
    if not sys.stdout.isatty():
        return "".join("\t".join(row) + "\n" for row in rows)
    columns = len(rows[0])
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(columns)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"

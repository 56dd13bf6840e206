"""What the command writes where: the product to stdout, everything else to stderr."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genai_pipeline.errors import GenaiError

if TYPE_CHECKING:
    from genai_pipeline.importers.progress import Progress


@dataclass(frozen=True, slots=True)
class Output:
    """How talkative stderr is: ``verbosity`` -1 says errors only, 0 notes and progress, 1 logs and tracebacks too."""

    verbosity: int = 0

    def note(self, text: str) -> None:
        """One line for the person at the terminal."""
        if self.verbosity >= 0:
            print_error(text)

    def failure(self, error: GenaiError) -> None:
        """An error as one line, its hint as another."""
        print_error(f"error: {error.message}")
        if error.hint:
            print_error(f"hint: {error.hint}")

    def set_up(self) -> None:
        """Send logs and warnings of libraries to stderr, as much of them as was asked for."""
        level = {-1: logging.ERROR, 0: logging.WARNING}.get(self.verbosity, logging.INFO)
        logging.basicConfig(stream=sys.stderr, level=level, format="%(levelname)s %(name)s: %(message)s")
        if self.verbosity < 0:
            warnings.simplefilter("ignore")
        warnings.showwarning = _show_warning

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A Progress for work that takes a while: a bar on a terminal, one line per task elsewhere, silence with -q."""
        if self.verbosity < 0:
            from genai_pipeline.importers.progress import silent

            yield silent
        elif sys.stderr.isatty():
            with _bars() as report:
                yield report
        else:
            yield _Lines()


def write(text: str) -> None:
    """Write a piece of the product, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write one JSON value as the product."""
    import json

    write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_error(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def discard_stdout() -> None:
    """After the reader of a pipe has gone: whatever is still written, at exit too, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    print_error(f"warning: {message}")


class _Lines:
    """Progress for a log: one line when a piece of work begins."""

    def __init__(self) -> None:
        self._total = -1

    def __call__(self, task: str, done: int, total: int, /) -> None:
        if total != self._total:
            self._total = total
            print_error(f"{task} ...")


@contextmanager
def _bars() -> Iterator[Progress]:
    """Progress for a terminal: one bar per piece of work, drawn from its first report on."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Bars(
        *columns, TimeRemainingColumn(), console=Console(stderr=True), redirect_stdout=False, transient=True
    ) as bars:
        drawn: dict[int, TaskID] = {}

        def report(task: str, done: int, total: int, /) -> None:
            if total not in drawn:
                drawn[total] = bars.add_task(task, total=total or None)
            bars.update(drawn[total], description=task, completed=done)

        yield report

"""What the command writes where: the product to stdout, everything else to stderr."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.errors import OutputError

if TYPE_CHECKING:
    from genai_pipeline.importers.progress import Progress

_PATIENCE: Final = 1.0  # seconds of silence that nobody minds


@dataclass(frozen=True, slots=True)
class Output:
    """How talkative stderr is: ``verbosity`` -1 says errors only, 0 notes and progress, 1 logs and tracebacks too."""

    verbosity: int = 0

    def note(self, text: str) -> None:
        """One line for the person at the terminal."""
        if self.verbosity >= 0:
            print_error(text)

    def aside(self, text: str) -> None:
        """Text beside the product, as it comes: dim on a terminal."""
        if self.verbosity >= 0:
            _write_error(f"\x1b[2m{text}\x1b[22m" if _draws() else text)

    def failure(self, message: str, hint: str) -> None:
        """An error as one line, its hint as another."""
        print_error(f"error: {message}")
        if hint:
            print_error(f"hint: {hint}")

    def set_up(self) -> None:
        """Send logs and warnings of libraries to stderr, as much of them as was asked for."""
        level = {-1: logging.ERROR, 0: logging.WARNING}.get(self.verbosity, logging.INFO)
        logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger().setLevel(level)
        if self.verbosity < 0:
            warnings.simplefilter("ignore")
        warnings.showwarning = _show_warning

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """A Progress for work that takes a while: a bar on a terminal, one line per task elsewhere, silence with -q."""
        if self.verbosity < 0:
            from genai_pipeline.importers.progress import silent

            yield silent
        elif _draws():
            with _bars() as report:
                yield report
        else:
            yield _Lines()

    @contextmanager
    def waiting(self, text: str) -> Iterator[Callable[[], None]]:
        """Show ``text`` on a terminal when nothing has come for a second; call what is given when something comes."""
        if self.verbosity < 0 or not _draws():
            yield lambda: None
            return
        note = _PassingNote(text)
        try:
            yield note.wipe
        finally:
            note.wipe()

    @contextmanager
    def counting(self, what: str) -> Iterator[Callable[[int], None]]:
        """On a terminal that shows nothing else, how many have been done, once that takes a second."""
        if self.verbosity < 0 or not _draws() or sys.stdout.isatty():
            yield lambda count: None
            return
        begin = time.monotonic()
        seen: list[int] = []

        def show(count: int) -> None:
            if time.monotonic() - begin >= _PATIENCE:
                seen.append(count)
                _write_error(f"\r\x1b[K{count:,} {what}")

        try:
            yield show
        finally:
            if seen:
                _write_error("\r\x1b[K")


class _PassingNote:
    """A line on a terminal that appears after a second unless it was wiped before, and vanishes when it is."""

    def __init__(self, text: str) -> None:
        self._lock = threading.Lock()
        self._shown = False
        self._timer = threading.Timer(_PATIENCE, self._show, (text,))
        self._timer.daemon = True
        self._timer.start()

    def wipe(self) -> None:
        """The line is gone, and will not come."""
        self._timer.cancel()
        with self._lock:
            if self._shown:
                self._shown = False
                _write_error("\r\x1b[K")

    def _show(self, text: str) -> None:
        with self._lock:
            if not self._timer.finished.is_set():
                self._shown = True
                _write_error(text)


def write(text: str) -> None:
    """Write a piece of the product, at once. Raises OutputError where it cannot be written."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # the reader has what it wanted
    except OSError as error:
        raise cannot_write(error) from error


def cannot_write(error: OSError) -> OutputError:
    """What to say of stdout that takes no more; what it still holds is let go."""
    discard_stdout()
    return OutputError(
        f"the output cannot be written: {error.strerror or error}",
        hint="see to free space where stdout goes, or send it elsewhere",
    )


def write_json(value: Any) -> None:
    """Write one JSON value as the product."""
    import json

    write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_json_line(value: Any) -> None:
    """Write one JSON value in one line as the product."""
    write(json_line(value))


def json_line(value: Any) -> str:
    """A JSON value as one line."""
    import json

    return json.dumps(value, ensure_ascii=False) + "\n"


def print_error(text: str) -> None:
    """One line on stderr."""
    _write_error(text + "\n")


def end_line() -> None:
    """After text on a terminal that did not end its line: what comes on stderr begins a new one."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        _write_error("\n")


def _draws() -> bool:
    """Whether stderr is a terminal on which text can be dimmed and taken back."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _write_error(text: str) -> None:
    """Write to stderr; there is nobody to tell when that cannot be done."""
    with suppress(OSError):
        sys.stderr.write(text)
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
    bars = Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), redirect_stdout=False, transient=True)
    drawn: dict[int, TaskID] = {}

    def report(task: str, done: int, total: int, /) -> None:
        if total not in drawn:
            drawn[total] = bars.add_task(task, total=total or None)
            bars.start()  # not before: it would draw nothing ten times a second
        bars.update(drawn[total], description=task, completed=done)

    try:
        yield report
    finally:
        if drawn:
            bars.stop()

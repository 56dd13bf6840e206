"""The chat without a terminal: lines in, answers out, the same bytes every time.

stdout has the answers and tool calls and nothing else; what commands show, notes and errors go to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from genai_pipeline.cli.chat.interrupts import on_interrupt
from genai_pipeline.cli.chat.typed import BLOCK, is_open
from genai_pipeline.cli.output import Output, print_error, write, write_json_line
from genai_pipeline.errors import RequestError

if TYPE_CHECKING:
    from genai_pipeline.errors import GenaiError
    from genai_pipeline.importers.progress import Progress
    from genai_pipeline.types import ToolCall


class PlainTerminal:
    """Reads lines of stdin. Where stdin is a terminal after all, it asks for them on stderr."""

    interactive = False

    def __init__(self, output: Output) -> None:
        """Raises RequestError where there is no stdin."""
        if sys.stdin is None:
            raise RequestError("nothing can be said: stdin is closed", hint="use the command 'run' for one request")
        self._output = output
        self._asks = sys.stdin.isatty() and sys.stderr.isatty()
        self.interactive = self._asks
        self._answered = ""  # the last piece of the answer
        self._aside = ""  # the last piece of reasoning, while no text followed

    def read(self, name: str) -> str:
        """One line, or those that belong together."""
        lines = [self._line(f"{name}> ")]
        try:
            while is_open("\n".join(lines)):
                lines.append(self._line("... "))
        except EOFError:
            if lines[0].lstrip().startswith(BLOCK):
                raise RequestError(f"the input ended before the {BLOCK} that ends the text", param="text") from None
        return "\n".join(lines)

    def answer(self, text: str) -> None:
        """To stdout, at once."""
        self._end_reasoning()
        write(text)
        self._answered = text

    def reasoning(self, text: str) -> None:
        """To stderr, at once."""
        self._output.aside(text)
        self._aside = text

    def end_answer(self, calls: Sequence[ToolCall]) -> None:
        """End the line, then each call is one line of JSON."""
        self._end_reasoning()
        if self._answered or not calls:
            write("" if self._answered.endswith("\n") else "\n")
        for call in calls:
            write_json_line(call.to_dict())
        self._answered = ""

    def break_off(self) -> None:
        """End the line that was begun."""
        self._end_reasoning()
        if self._answered and not self._answered.endswith("\n"):
            write("\n")
        self._answered = ""

    def show(self, text: str) -> None:
        """To stderr, with -q too: it was asked for."""
        print_error(text)

    def note(self, text: str) -> None:
        """To stderr."""
        self._output.note(text)

    def failure(self, error: GenaiError) -> None:
        """To stderr, as of every command."""
        self._output.failure(error.message, error.hint)

    def progress(self) -> AbstractContextManager[Progress]:
        """As of every command."""
        return self._output.progress()

    def waiting(self, text: str) -> AbstractContextManager[Callable[[], None]]:
        """As of every command."""
        return self._output.waiting(text)

    def interruptible(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """SIGINT calls it."""
        return on_interrupt(stop)

    def _end_reasoning(self) -> None:
        if self._aside and not self._aside.endswith("\n"):
            self._output.aside("\n")
        self._aside = ""

    def _line(self, prompt: str) -> str:
        """A line without its end."""
        if self._asks:
            sys.stderr.write(prompt)
            sys.stderr.flush()
        try:
            read = sys.stdin.buffer.readline()
        except OSError as error:  # the terminal has gone
            raise EOFError from error
        if not read:
            raise EOFError
        try:
            return read.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise RequestError(f"a line on stdin is not UTF-8: {error}", param="text") from error

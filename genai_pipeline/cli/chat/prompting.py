"""The chat on a terminal: prompt_toolkit reads and edits lines, rich styles what is shown. Home of prompt_toolkit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History as PromptHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console
from rich.text import Text

from genai_pipeline.cli.chat.interrupts import on_interrupt
from genai_pipeline.cli.chat.typed import is_open
from genai_pipeline.cli.output import Output, cannot_write

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.completion import Offer
    from genai_pipeline.cli.chat.history import History
    from genai_pipeline.errors import GenaiError
    from genai_pipeline.importers.progress import Progress
    from genai_pipeline.types import ToolCall

Offers = Callable[[str], "Sequence[Offer]"]  # what may complete a line up to the cursor


class PromptTerminal:
    """A person at a terminal. Enter sends; Alt-Enter, and Enter where a text goes on, begin a new line.

    Ctrl-C empties a line that has something in it.
    """

    interactive = True

    def __init__(self, output: Output, history: History, offers: Offers) -> None:
        self._output = output
        self._console = Console(highlight=False, soft_wrap=True)
        self._session: PromptSession[str] = PromptSession(
            history=_Kept(history),
            completer=_Offered(offers),
            complete_while_typing=False,
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation="... ",
        )
        self._at_line_start = True
        self._thought = False  # whether reasoning was shown, and nothing since

    def read(self, name: str) -> str:
        """What is typed, edited, recalled or pasted."""
        return self._session.prompt([("bold", f"{name}> ")])

    def answer(self, text: str) -> None:
        """At once, in the terminal's own colour."""
        if self._thought:
            self._end_line()
        self._print(text)
        self._thought = False

    def reasoning(self, text: str) -> None:
        """At once, dim."""
        self._print(text, "dim")
        self._thought = True

    def end_answer(self, calls: Sequence[ToolCall]) -> None:
        """Each call is one line: its name and its arguments."""
        self.break_off()
        for call in calls:
            self._line(f"→ {call.name}({call.arguments})", "cyan")

    def break_off(self) -> None:
        """End the line that was begun."""
        self._end_line()
        self._thought = False

    def show(self, text: str) -> None:
        """In the terminal's own colour."""
        self._line(text)

    def note(self, text: str) -> None:
        """Dim; not with -q."""
        if self._output.verbosity >= 0:
            self._line(text, "dim")

    def failure(self, error: GenaiError) -> None:
        """Red, its hint below it."""
        self._line(f"error: {error.message}", "red")
        if error.hint:
            self._line(f"hint: {error.hint}", "dim")

    def progress(self) -> AbstractContextManager[Progress]:
        """A bar."""
        return self._output.progress()

    def waiting(self, text: str) -> AbstractContextManager[Callable[[], None]]:
        """As of every command."""
        return self._output.waiting(text)

    def interruptible(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """SIGINT calls it."""
        return on_interrupt(stop)

    def _line(self, text: str, style: str = "") -> None:
        self._end_line()
        self._print(f"{text}\n", style)

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._print("\n")

    def _print(self, text: str, style: str = "") -> None:
        try:
            if style:
                self._console.print(Text(visible(text), style=style), end="")
            else:
                self._console.file.write(visible(text))
            self._console.file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise cannot_write(error) from error
        self._at_line_start = text.endswith("\n") or (self._at_line_start and not text)


def visible(text: str) -> str:
    """The text with control characters as pictures: what a model writes does not move the cursor, or worse."""
    return "".join(_picture(character) for character in text)


def _picture(character: str) -> str:
    code = ord(character)
    if character in "\n\t" or (code >= 0x20 and not 0x7F <= code < 0xA0):
        return character
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "\ufffd"


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("c-c")
    def _interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


class _Kept(PromptHistory):
    """Our history, for prompt_toolkit to walk through."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        return reversed(self._history.entries)

    def store_string(self, string: str) -> None:
        self._history.add(string)


class _Offered(Completer):
    """Our completions, for prompt_toolkit to show."""

    def __init__(self, offers: Offers) -> None:
        self._offers = offers

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        for offer in self._offers(document.text_before_cursor):
            yield Completion(offer.text, -offer.replaces, display=offer.shown, display_meta=offer.says)

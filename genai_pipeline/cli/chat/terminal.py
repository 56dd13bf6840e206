"""What the chat needs of where it is held: something that reads what is said, and shows what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from genai_pipeline.errors import GenaiError
    from genai_pipeline.importers.progress import Progress
    from genai_pipeline.types import ToolCall


class Terminal(Protocol):
    """One person, or one pipe, to talk with."""

    interactive: bool  # whether somebody sees what goes wrong; else the exit code tells

    def read(self, name: str) -> str:
        """The next thing that is said, perhaps of several lines; ``name`` is of the conversation it goes to.

        Raises EOFError when nothing more comes, KeyboardInterrupt for Ctrl-C, RequestError for what is no text.
        """

    def answer(self, text: str) -> None:
        """A piece of an answer, as it comes."""

    def reasoning(self, text: str) -> None:
        """A piece of what the model thinks before it answers."""

    def end_answer(self, calls: Sequence[ToolCall]) -> None:
        """The answer is over, with these tool calls; what comes next begins a line."""

    def break_off(self) -> None:
        """No more of the answer comes, though it had not ended; what comes next begins a line."""

    def show(self, text: str) -> None:
        """Lines that were asked for."""

    def note(self, text: str) -> None:
        """One line about what happened."""

    def failure(self, error: GenaiError) -> None:
        """What went wrong, and what to do about it."""

    def progress(self) -> AbstractContextManager[Progress]:
        """Shows how far work is that takes a while."""

    def waiting(self, text: str) -> AbstractContextManager[Callable[[], None]]:
        """Says ``text`` when nothing has come for a while; call what is given when something comes."""

    def interruptible(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Within, each Ctrl-C calls ``stop`` and raises nothing."""

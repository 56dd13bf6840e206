"""The loop of a chat: read what is said, do it, show what comes of it, until there is nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genai_pipeline.cli.chat import slash, turns
from genai_pipeline.cli.chat.typed import Command, Said, read_typed
from genai_pipeline.cli.entry import INTERRUPTED
from genai_pipeline.errors import EngineClosedError, EngineFailedError, GenaiError, OutputError

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.state import Chat

_HOPELESS: Final = (EngineClosedError, EngineFailedError, OutputError)  # no answer could come, or be shown, after these


class Repl:
    """Holds one chat on its terminal."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._code = 0  # of the first thing that went wrong

    def run(self) -> int:
        """Go on until the input ends, /exit, or Ctrl-C twice; gives the exit code.

        Where nobody watches, that is the code of the first error. Raises what ends a chat early.
        """
        while not self._chat.ended:
            try:
                self._step()
            except EOFError:
                break
            except KeyboardInterrupt:
                self._interrupted()
            except _HOPELESS:
                raise
            except GenaiError as error:
                self._failed(error)
            if self._chat.presses > 1:
                return INTERRUPTED
        return self._code

    def _step(self) -> None:
        """One input."""
        typed = read_typed(self._chat.terminal.read(self._chat.forks.name))
        self._chat.presses = 0
        if isinstance(typed, Command):
            slash.find(typed.name).does(self._chat, typed.argument)
        elif isinstance(typed, Said):
            turns.say(self._chat, typed.text)

    def _interrupted(self) -> None:
        self._chat.presses += 1
        if self._chat.presses == 1:
            self._chat.terminal.note("Ctrl-C again leaves, as Ctrl-D does")

    def _failed(self, error: GenaiError) -> None:
        self._chat.terminal.failure(error)
        if not self._chat.terminal.interactive:
            self._code = self._code or error.exit_code

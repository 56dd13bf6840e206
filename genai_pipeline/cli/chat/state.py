"""What a chat is about at a moment: the package, the conversations, the options, and what waits to be said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from genai_pipeline.cli.chat.conversation import Conversation, Forks
from genai_pipeline.cli.chat.figures import Tally
from genai_pipeline.cli.media_in import Attachment

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.model import Model
    from genai_pipeline.cli.chat.options import ChatOptions
    from genai_pipeline.cli.chat.terminal import Terminal
    from genai_pipeline.pipeline import Pipeline


@dataclass(slots=True)
class Chat:
    """Everything that commands of a chat read and change."""

    terminal: Terminal
    model: Model
    options: ChatOptions
    forks: Forks
    tally: Tally = field(default_factory=Tally)
    media: list[Attachment] = field(default_factory=list)  # files that go with what is said next
    presses: int = 0  # of Ctrl-C, since anything else was typed
    ended: bool = False

    @property
    def pipe(self) -> Pipeline:
        """The loaded package."""
        return self.model.pipe

    @property
    def conversation(self) -> Conversation:
        """The one being held."""
        return self.forks.current

    def close(self) -> None:
        """Let all state go and stop the engine."""
        self.forks.close()
        self.model.close()

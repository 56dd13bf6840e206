"""What is said in a chat: conversations with names that fork from each other, each one a session of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from genai_pipeline.engine.session import Mark, Message
from genai_pipeline.errors import RequestError
from genai_pipeline.problems import nearest, one_of

if TYPE_CHECKING:
    from genai_pipeline.engine.session import Session
    from genai_pipeline.pipeline import Pipeline

FIRST: Final = "main"
MAX_FORKS: Final = 64
_MAX_NAME: Final = 40


class Conversation:
    """One session, with the moments before its turns to rewind to."""

    def __init__(self, session: Session, marks: Sequence[Mark] | None = None) -> None:
        self.session = session
        self._marks = list(_marks(session.messages) if marks is None else marks)

    @property
    def turns(self) -> int:
        """How many times something was said that can be taken back."""
        return len(self._marks)

    @property
    def system(self) -> str | None:
        """The system message."""
        first = next(iter(self.session.messages), None)
        return first["content"] if first is not None and first["role"] == "system" else None

    def set_system(self, text: str | None) -> None:
        """Put another system message first, or none; what was said stays."""
        rest = self.session.messages[self.system is not None :]
        head = () if text is None else ({"role": "system", "content": text},)
        self._replace((*head, *rest))

    def keep(self, before: Mark) -> None:
        """A turn is over that began at ``before``; where nothing came of it, there is nothing to take back."""
        if self.session.messages != before.messages:
            self._marks.append(before)

    def rewind(self, turns: int) -> None:
        """Take back turns, the last ones first. Raises RequestError."""
        if not 1 <= turns <= self.turns:
            said = f"{self.turns} turn{'s' * (self.turns != 1)}"
            raise RequestError(f"this conversation has {said}, so {turns} cannot be taken back", param="turns")
        self.session.rewind(self._marks[-turns])
        del self._marks[-turns:]

    def fork(self) -> Conversation:
        """Another one that goes on from here."""
        return Conversation(self.session.fork(), self._marks)

    def go_on(self, session: Session) -> None:
        """Go on in a new session of another pipeline, with what was said so far."""
        messages = self.session.messages
        self.session.close()
        self.session = session
        self._replace(messages)

    def _replace(self, messages: Sequence[Message]) -> None:
        """Other messages, whose tokens nobody knows yet."""
        self.session.rewind(Mark(tuple(messages), ()))
        self._marks = _marks(messages)


class Forks:
    """All conversations of a chat by name, and which one is being held."""

    def __init__(self, session: Session) -> None:
        self._conversations = {FIRST: Conversation(session)}
        self.name = FIRST

    @property
    def current(self) -> Conversation:
        """The conversation being held."""
        return self._conversations[self.name]

    @property
    def all(self) -> Mapping[str, Conversation]:
        """Every conversation by its name, in the order in which they began."""
        return self._conversations

    def load(self, session: Session) -> None:
        """Hold another conversation in the place of the current one."""
        self.current.session.close()
        self._conversations[self.name] = Conversation(session)

    def switch(self, name: str) -> bool:
        """Hold that conversation; one that is not there yet begins as a copy of the current. Returns whether it began.

        Raises RequestError.
        """
        began = name not in self._conversations
        if began:
            self._check(name)
            self._conversations[name] = self.current.fork()
        self.name = name
        return began

    def move(self, pipe: Pipeline) -> None:
        """All conversations go on with another pipeline. Raises RequestError where it has no sessions."""
        for conversation in self._conversations.values():
            conversation.go_on(pipe.session())

    def close(self) -> None:
        """Let all state go."""
        for conversation in self._conversations.values():
            conversation.session.close()

    def _check(self, name: str) -> None:
        if len(name) > _MAX_NAME or not all(part.isalnum() for part in name.replace("-", "_").split("_")):
            message = f"a fork's name has letters, digits, - and _, {_MAX_NAME} at most; this one is '{name}'"
            raise RequestError(message, param="name", hint=nearest(name, self._conversations))
        if len(self._conversations) >= MAX_FORKS:
            message = f"there are {MAX_FORKS} forks already, as many as may be"
            raise RequestError(message, param="name", hint=f"go on in one of them: {one_of(self._conversations)}")


def _marks(messages: Sequence[Message]) -> list[Mark]:
    """The moments before what the user said."""
    return [Mark(tuple(messages[:index]), ()) for index, message in enumerate(messages) if message["role"] == "user"]

"""The sessions of one pipeline: how they ask, where their state is kept, how many there may be and for how long."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_pipeline.engine.engine import Engine
from genai_pipeline.engine.session import Mark, Message, Session
from genai_pipeline.engine.state_keeper import StateKeeper
from genai_pipeline.errors import CheckpointError
from genai_pipeline.kv.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.page_store import Match

if TYPE_CHECKING:
    from genai_pipeline.engine.streams import Stream

MAX_SESSIONS = 64
IDLE_SECONDS = 3600.0

Ask = Callable[[Sequence[Message], bytes, Mapping[str, Any]], "tuple[Stream, list[int]]"]


class Sessions:
    """Opens sessions and keeps their state; those beyond the limits lose their state, never their conversation."""

    def __init__(self, engine: Engine, keeper: StateKeeper, identity: Mapping[str, str], ask: Ask, *, shared: bool):
        """``shared``: sessions share prefixes with all requests of the pipeline; else each has its own."""
        self._engine = engine
        self._keeper = keeper
        self._identity = identity
        self._ask = ask
        self._shared = shared
        self._open: dict[int, Session] = {}
        self._lock = threading.Lock()

    def open(self, path: str | None = None) -> Session:
        """A new session, or one that goes on from a file. Raises CheckpointError."""
        salt = b"" if self._shared else secrets.token_bytes(16)
        session = Session(self, salt, Mark((), ()) if path is None else self._load(path, salt))
        self._enter(session)
        return session

    def ask(self, messages: Sequence[Message], salt: bytes, options: Mapping[str, Any]) -> tuple[Stream, list[int]]:
        """Start a turn; gives its events and its prompt's tokens."""
        self._expire()
        return self._ask(messages, salt, options)

    def pin(self, tokens: Sequence[int], salt: bytes) -> Match:
        """Keep the state of ``tokens`` until it is unpinned."""
        return self._engine.call(lambda: self._keeper.pin(tokens, salt))

    def unpin(self, match: Match) -> None:
        """Let pinned state go when room is needed."""
        self._engine.call(lambda: self._keeper.unpin(match))

    def save(self, path: str, mark: Mark, salt: bytes) -> None:
        """Write a session to a file: its messages, its tokens, and the state of those of them that is kept."""
        length, saved = self._engine.call(lambda: self._keeper.export(mark.tokens, salt))
        extra = {"messages": json.dumps(list(mark.messages))}
        write_checkpoint(Path(path), mark.tokens, saved, self._identity, extra, num_computed=length)

    def leave(self, session: Session) -> None:
        """Forget a session that was closed."""
        with self._lock:
            self._open.pop(id(session), None)

    def _load(self, path: str, salt: bytes) -> Mark:
        found = read_checkpoint(Path(path), self._identity, self._keeper.components)
        mark = Mark(_messages(path, found), found.tokens)
        tokens = found.tokens[: found.num_computed]
        self._engine.call(lambda: self._keeper.adopt(tokens, salt, found.saved))
        return mark

    def _enter(self, session: Session) -> None:
        with self._lock:
            self._open[id(session)] = session
            crowd = sorted(self._open.values(), key=lambda open: open.last_used)[:-MAX_SESSIONS]
        for oldest in crowd:
            oldest.release_state()

    def _expire(self) -> None:
        now = time.monotonic()
        with self._lock:
            idle = [session for session in self._open.values() if now - session.last_used > IDLE_SECONDS]
        for session in idle:
            session.release_state()


def _messages(path: str, found: Checkpoint) -> tuple[Message, ...]:
    """The conversation in a checkpoint, which anybody may have written. Raises CheckpointError."""
    hint = "name a file that a session's save wrote"
    if found.num_computed % PAGE_TOKENS:
        raise CheckpointError(
            f"the checkpoint {path} has the state of {found.num_computed} tokens; a session's is of whole pages of "
            f"{PAGE_TOKENS}",
            hint=hint,
        )
    try:
        messages = json.loads(found.extra["messages"])
    except (KeyError, ValueError, RecursionError) as error:
        raise CheckpointError(f"the checkpoint {path} has no messages that can be read", hint=hint) from error
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        raise CheckpointError(f"the messages in the checkpoint {path} are no list of messages", hint=hint)
    return tuple(messages)


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)

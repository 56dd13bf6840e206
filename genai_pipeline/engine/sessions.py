"""The sessions of one pipeline: how they ask, where their state is kept, how many there may be and for how long."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_pipeline.engine.engine import Engine
from genai_pipeline.engine.saved_session import read, written
from genai_pipeline.engine.session import Mark, Message, Pin, Session
from genai_pipeline.engine.state_keeper import StateKeeper
from genai_pipeline.kv.checkpoint import read_checkpoint, write_checkpoint
from genai_pipeline.kv.page_store import Match
from genai_pipeline.kv.prefix_keys import prefix_keys

if TYPE_CHECKING:
    from genai_pipeline.engine.session import Asked

MAX_SESSIONS = 64
IDLE_SECONDS = 3600.0

Ask = Callable[[Sequence[Message], bytes, Mapping[str, Any]], "Asked"]


class Sessions:
    """Opens sessions and keeps their state; those beyond the limits lose their state, never their conversation."""

    def __init__(self, engine: Engine, keeper: StateKeeper, identity: Mapping[str, str], ask: Ask, *, shared: bool):
        """``shared``: sessions share prefixes with all requests of the pipeline; else each has its own."""
        self._engine = engine
        self._keeper = keeper
        self._identity = identity
        self._ask = ask
        self._shared = shared
        self._holding: weakref.WeakSet[Session] = weakref.WeakSet()  # those whose state is pinned
        self._orphans: deque[Match] = deque()  # pinned for sessions that are no more; appended by finalizers
        self._lock = threading.Lock()

    def open(self, path: str | None = None) -> Session:
        """A new session, or one that goes on from a file. Raises CheckpointError."""
        salt = b"" if self._shared else secrets.token_bytes(16)
        return Session(self, salt, Mark((), ()) if path is None else self._load(path, salt))

    def ask(self, messages: Sequence[Message], salt: bytes, options: Mapping[str, Any]) -> Asked:
        """A turn, ready to be submitted, and its prompt's tokens with their identities."""
        self._expire()
        return self._ask(messages, salt, options)

    def pin(self, session: Session, salt: bytes) -> Pin:
        """Keep the state of a session's tokens; the session used longest ago loses its own when there are too many."""
        keys = _keys(session.checkpoint())
        match = self._engine.call(lambda: self._pin(keys, salt))
        orphaned = weakref.finalize(session, self._orphans.append, match)
        orphaned.atexit = False
        with self._lock:
            self._holding.add(session)
            crowd = sorted(self._holding, key=lambda held: held.last_used)[:-MAX_SESSIONS]
        for oldest in crowd:
            oldest.release_state()
        return Pin(match, orphaned)

    def unpin(self, session: Session, pin: Pin) -> None:
        """Let pinned state go when room is needed."""
        with self._lock:
            self._holding.discard(session)
        if pin.orphaned.detach() is not None:
            self._engine.call(lambda: self._keeper.unpin(pin.match))

    def save(self, path: str, mark: Mark, salt: bytes) -> None:
        """Write a session to a file: its messages, its tokens, and the state of those of them that is kept."""
        extra = written(mark)
        length, saved = self._engine.call(lambda: self._keeper.export(_keys(mark), salt))
        write_checkpoint(Path(path), mark.tokens, saved, self._identity, extra, num_computed=length)

    def _load(self, path: str, salt: bytes) -> Mark:
        found = read_checkpoint(Path(path), self._identity, self._keeper.components)
        mark = read(path, found)
        keys = _keys(mark)[: found.num_computed]
        self._engine.call(lambda: self._keeper.adopt(keys, salt, found.saved))
        return mark

    def _pin(self, tokens: Sequence[Hashable], salt: bytes) -> Match:
        """On the engine thread: pin, after what is pinned for nobody any more was let go."""
        while self._orphans:
            self._keeper.unpin(self._orphans.popleft())
        return self._keeper.pin(tokens, salt)

    def _expire(self) -> None:
        now = time.monotonic()
        with self._lock:
            idle = [session for session in self._holding if now - session.last_used > IDLE_SECONDS]
        for session in idle:
            session.release_state()


def _keys(mark: Mark) -> Sequence[Hashable]:
    """What the state of a moment is found by."""
    return prefix_keys(mark.tokens, mark.identities)

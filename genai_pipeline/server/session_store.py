"""The sessions that clients hold by an id: whose they are, how far they go back, and when they end.

A session belongs to a key and to a package. It does not keep its package loaded: when that goes, the session ends, and
says so to whoever asks for it until it would have ended anyway.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from genai_pipeline.engine.session import Mark, Session
from genai_pipeline.problems import shown
from genai_pipeline.server.api_errors import ApiError, bad_request, too_many

MAX_TURNS: Final = 1000  # that can be gone back; older ones stay part of the conversation
SHOWN: Final = 80
UNLOADED: Final = "the session has ended: its model was unloaded"

Clock = Callable[[], float]


@dataclass(slots=True)
class Held:
    """One session; ``session`` None once it has ended. ``lengths``: messages, tokens and slots after each turn."""

    id: str
    caller: str
    model: str
    session: Session | None
    seconds: float  # without a turn until it ends
    parent: str | None = None
    created: float = field(default_factory=time.time)
    used: float = 0.0
    busy: object | None = None  # what is done with it at the moment, as its claim
    turns: int = 0
    lengths: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def until(self) -> float:
        """When it ends."""
        return self.used + self.seconds

    def live(self) -> Session:
        """The session itself. Raises ApiError 410 when it has ended, 409 while a turn is under way."""
        if self.session is None:
            raise ApiError(410, UNLOADED, code="session_ended")
        if self.busy is not None:
            raise ApiError(409, "a turn of this session is under way", code="session_busy")
        return self.session

    @contextmanager
    def claim(self) -> Iterator[Session]:
        """The session for oneself, until it is given back or ``busy`` is None. Raises ApiError 409 or 410."""
        session, mine = self.live(), object()
        self.busy = mine
        try:
            yield session
        finally:
            if self.busy is mine:
                self.busy = None

    def note(self) -> None:
        """Remember where the last turn ended."""
        assert self.session is not None
        now = self.session.checkpoint()
        self.lengths[self.turns] = (len(now.messages), len(now.tokens), len(now.identities))
        self.lengths.pop(self.turns - MAX_TURNS, None)

    def mark(self, turn: int) -> Mark:
        """The moment after a turn. Raises ApiError 400 for one that is not there."""
        if turn not in self.lengths:
            message = f"turn must be between {min(self.lengths)} and {self.turns}, not {shown(turn)}"
            raise bad_request(message, "turn")
        assert self.session is not None
        messages, tokens, slots = self.lengths[turn]
        now = self.session.checkpoint()
        return Mark(now.messages[:messages], now.tokens[:tokens], now.identities[:slots])


class SessionStore:
    """All sessions of a server; used on the event loop alone."""

    def __init__(self, most: int, seconds: float, clock: Clock = time.monotonic) -> None:
        """``most`` sessions of a key at a time, which end after ``seconds`` without a turn."""
        self._held: dict[str, Held] = {}
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Future[Any]] = set()

    def check_room(self, caller: str) -> None:
        """Raises ApiError 429 when a caller has as many sessions as it may have."""
        self._expire()
        if sum(held.caller == caller for held in self._held.values()) >= self._most:
            message = f"there are {self._most} sessions of this key; delete some"
            raise too_many(message, code="too_many_sessions")

    def add(
        self, caller: str, model: str, session: Session, seconds: float | None = None, parent: Held | None = None
    ) -> Held:
        """Hold a session that was opened or forked; ``seconds`` are the package's own bound."""
        least = self._seconds if seconds is None else min(self._seconds, seconds)
        held = Held(f"sess_{secrets.token_urlsafe(24)}", caller, model, session, least, used=self._clock())
        if parent is not None:
            held.parent, held.turns, held.lengths = parent.id, parent.turns, dict(parent.lengths)
        held.note()
        self._held[held.id] = held
        self._arm()
        return held

    def get(self, caller: str, id: str) -> Held:
        """A session of a caller, perhaps one that has ended. Raises ApiError 404, for another caller's too."""
        self._expire()
        held = self._held.get(id)
        if held is None or held.caller != caller:
            message = f"there is no session '{id[:SHOWN]}' (it may have ended a while ago)"
            raise ApiError(404, message, code="session_not_found")
        return held

    def list(self, caller: str) -> list[Held]:
        """The sessions of a caller, the latest first."""
        self._expire()
        return [held for held in reversed(self._held.values()) if held.caller == caller]

    def touch(self, held: Held) -> None:
        """A session was used."""
        held.used = self._clock()

    def remove(self, held: Held) -> None:
        """End a session and forget it."""
        self._held.pop(held.id, None)
        self._let_go(held)

    def end_all(self, model: str) -> None:
        """The package of these sessions goes: they end, and are remembered as ended."""
        for held in self._held.values():
            if held.model == model:
                held.session = None  # its state goes with the package

    def _expire(self) -> None:
        now = self._clock()
        for held in [held for held in self._held.values() if held.until <= now and held.busy is None]:
            self.remove(held)

    def _let_go(self, held: Held) -> None:
        """Close a session; that waits for the engine, so it is done on a worker thread."""
        session, held.session = held.session, None
        if session is not None:
            task = asyncio.ensure_future(asyncio.to_thread(session.close))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _arm(self) -> None:
        """Have sessions end in time also when nobody asks."""
        if self._timer is None and self._held:
            wait = max(1.0, min(held.until for held in self._held.values()) - self._clock())
            self._timer = asyncio.get_running_loop().call_later(wait, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._expire()
        self._arm()

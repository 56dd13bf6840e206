"""Limits of the server and of each key, and the meters that hold them; used on the event loop alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request or connection may take; times are in seconds."""

    body_bytes: int = 1 << 20  # what is read in one go, by libraries that let nobody else run, stays short
    media_bytes: int = 32 << 20  # of a body that may hold media, and of all media of a conversation
    media_room_bytes: int = 512 << 20  # of large bodies, and the media in them, of all requests under way
    media_items: int = 32  # images and sounds of a conversation
    header_bytes: int = 32 << 10
    json_depth: int = 64
    json_items: int = 100_000
    requests: int = 256  # under way at once
    request_seconds: float = 600.0  # in the queue and running
    header_seconds: float = 10.0  # until a connection has sent the headers of a request
    body_seconds: float = 60.0  # until a body is here
    send_seconds: float = 60.0  # until a client takes what was sent
    keep_alive_seconds: float = 15.0  # between comments in a stream that is silent
    idle_seconds: float = 30.0  # of a connection without a request
    sessions: int = 64  # of one key at a time
    session_seconds: float = 3600.0  # until a session without turns is ended
    responses: int = 1000  # stored ones, of all keys
    response_seconds: float = 86400.0  # until a stored response is forgotten


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one key may use; None: no limit of its own."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None


NO_LIMITS: Final = KeyLimits()


class Bucket:
    """So many units a minute, and at most a minute's worth at once; what is overdrawn is waited for."""

    def __init__(self, per_minute: int, clock: Clock = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._most = float(per_minute)
        self._clock = clock
        self._level = float(per_minute)
        self._at = clock()

    def wait(self, units: float = 1.0) -> float:
        """Seconds until so many units are there; 0 when they are. More than a minute's worth counts as that."""
        self._refill()
        return max(0.0, (min(units, self._most) - self._level) / self._rate)

    def take(self, units: float) -> None:
        """Use units, perhaps more than there are."""
        self._refill()
        self._level -= units

    def _refill(self) -> None:
        now = self._clock()
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now

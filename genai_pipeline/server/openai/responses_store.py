"""Responses that are kept for ``previous_response_id`` and for reading: bounded, for a time, each for its caller."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.server.api_errors import ApiError

MAX_RESPONSES: Final = 1000
MAX_BYTES: Final = 64 << 20
SECONDS: Final = 24 * 3600.0
MAX_ITEMS: Final = 10_000  # in one conversation
SHOWN: Final = 80

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """A response, and all items of its conversation up to its own; ``nbytes`` is about what they take."""

    caller: str
    response: dict[str, Any]
    items: tuple[Item, ...]
    inputs: int  # items before those of the response
    nbytes: int
    until: float


class ResponseStore:
    """The responses of one server, the oldest forgotten first; used on the event loop alone."""

    def __init__(
        self,
        *,
        most: int = MAX_RESPONSES,
        nbytes: int = MAX_BYTES,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stored: OrderedDict[str, Stored] = OrderedDict()
        self._most = most
        self._nbytes = nbytes
        self._seconds = seconds
        self._clock = clock
        self._held = 0

    def __len__(self) -> int:
        return len(self._stored)

    def get(self, caller: str, id: str, param: str | None = None) -> Stored:
        """A response of a caller. Raises ApiError 404, for another caller's too."""
        self._expire()
        found = self._stored.get(id)
        if found is None or found.caller != caller:
            message = f"no response '{id[:SHOWN]}' is stored (it may have been too long ago)"
            raise ApiError(404, message, code="response_not_found", param=param)
        return found

    def put(self, caller: str, response: dict[str, Any], items: Sequence[Item], inputs: int, nbytes: int) -> None:
        """Keep a response; what goes beyond the bounds is forgotten."""
        self._expire()
        until = self._clock() + self._seconds
        stored = Stored(caller, response, tuple(items), inputs, nbytes, until)
        self._stored[response["id"]] = stored
        self._held += nbytes
        while len(self._stored) > self._most or self._held > self._nbytes:
            self._forget(next(iter(self._stored)))

    def delete(self, caller: str, id: str) -> None:
        """Forget a response of a caller. Raises ApiError 404."""
        self.get(caller, id)
        self._forget(id)

    def _expire(self) -> None:
        now = self._clock()
        while self._stored and (oldest := next(iter(self._stored.items())))[1].until <= now:
            self._forget(oldest[0])

    def _forget(self, id: str) -> None:
        self._held -= self._stored.pop(id).nbytes

"""Room for large bodies and fetched media: all requests that are under way share it."""

from __future__ import annotations

from starlette.requests import Request

from genai_pipeline.server.api_errors import unavailable


class Room:
    """So many bytes; used on the event loop alone."""

    def __init__(self, most: int) -> None:
        self.left = most


class Claim:
    """What one request has of the room; given back when its response has ended."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._taken = 0
        self._over = False

    def take(self, nbytes: int) -> None:
        """Take room; none once it was given back. Raises ApiError 503 where there is none."""
        if self._over:
            return
        if nbytes > self._room.left:
            raise unavailable("the server holds as much media as it may at the moment", code="media_room_full")
        self._room.left -= nbytes
        self._taken += nbytes

    def give_back(self) -> None:
        """All of it."""
        self._room.left += self._taken
        self._taken = 0
        self._over = True


def claim(request: Request) -> Claim:
    """The claim of a request, made when it is first needed."""
    state = request.state
    if not hasattr(state, "claim"):
        state.claim = Claim(request.app.state.room)
        state.exchange.held.callback(state.claim.give_back)
    made: Claim = state.claim
    return made

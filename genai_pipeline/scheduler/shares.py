"""How much of the machine each key has had, among those that want some of it now."""

from __future__ import annotations

from collections import Counter


class Shares:
    """Tokens computed by key. A key counts while it has sequences; one that comes starts level with the least served.

    So neither does a newcomer make up for the time before it came, nor does anybody pay for times of no contention.
    """

    def __init__(self) -> None:
        self.served: dict[str, int] = {}
        self._members: Counter[str] = Counter()

    def enter(self, key: str) -> None:
        """A sequence of this key was submitted."""
        if not self._members[key]:
            self.served[key] = min(self.served.values(), default=0)
        self._members[key] += 1

    def serve(self, key: str, tokens: int) -> None:
        """So many tokens of this key were computed."""
        self.served[key] += tokens

    def leave(self, key: str) -> None:
        """A sequence of this key ended."""
        self._members[key] -= 1
        if not self._members[key]:
            del self._members[key], self.served[key]

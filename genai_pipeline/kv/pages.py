"""Who owns which rows and how many pages: integers only, so that it can be proved without a model."""

from __future__ import annotations

import heapq

from genai_pipeline.kv.geometry import pages_for


class PageLedger:
    """Rows [0, num_rows) and a budget of pages. A row holds pages from its first reservation until it is given back."""

    def __init__(self, num_rows: int, num_pages: int) -> None:
        assert num_rows > 0
        assert num_pages >= 0
        self.num_rows = num_rows
        self.num_pages = num_pages
        self._free_rows = list(range(num_rows))  # a heap
        self._held: dict[int, int] = {}  # live row -> pages
        self._free_pages = num_pages

    @property
    def free_rows(self) -> int:
        """Rows nobody owns."""
        return len(self._free_rows)

    @property
    def free_pages(self) -> int:
        """Pages nobody holds."""
        return self._free_pages

    def held(self, row: int) -> int:
        """Pages a live row holds."""
        return self._held[row]

    def take(self) -> int | None:
        """The lowest free row, holding no pages yet; None when all are taken."""
        if not self._free_rows:
            return None
        row = heapq.heappop(self._free_rows)
        self._held[row] = 0
        return row

    def reserve(self, row: int, tokens: int) -> bool:
        """Let a row hold the pages of ``tokens`` tokens in all; False, and nothing changed, if there are too few."""
        more = pages_for(tokens) - self._held[row]
        if more > self._free_pages:
            return False
        if more > 0:
            self._held[row] += more
            self._free_pages -= more
        return True

    def shrink(self, row: int, tokens: int) -> None:
        """Give back the pages a row holds beyond ``tokens`` tokens."""
        spare = self._held[row] - pages_for(tokens)
        if spare > 0:
            self._held[row] -= spare
            self._free_pages += spare

    def move(self, source: int, target: int) -> None:
        """Let a free row take over everything of a live one."""
        assert target in self._free_rows, f"row {target} is not free"
        self._free_rows.remove(target)
        heapq.heapify(self._free_rows)
        self._held[target] = self._held.pop(source)
        heapq.heappush(self._free_rows, source)

    def give_back(self, row: int) -> None:
        """End a row: its pages are free, and so is it."""
        self._free_pages += self._held.pop(row)
        heapq.heappush(self._free_rows, row)

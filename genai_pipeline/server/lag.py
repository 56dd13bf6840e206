"""How late the event loop is: what blocks it delays every stream."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

STEP: Final = 0.02  # seconds between looks
KEPT: Final = 500  # looks that are remembered: ten seconds


class LagMeter:
    """Looks at the clock again and again; ``report`` hears the worst of the last ten seconds, twice.

    First how late the loop was, then how late it was while a processor was to be had: what work on the loop, or
    another thread that kept the interpreter, has to answer for. Both are the same where the system does not say.
    """

    def __init__(self, report: Callable[[float, float], None]) -> None:
        self._report = report
        self._late: deque[float] = deque(maxlen=KEPT)
        self._blocked: deque[float] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Look until cancelled."""
        statistics = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        while True:
            for _ in range(round(1 / STEP)):
                begun, waited = time.perf_counter(), _waited(statistics)
                await asyncio.sleep(STEP)
                late = max(0.0, time.perf_counter() - begun - STEP)
                self._late.append(late)
                self._blocked.append(max(0.0, late - (_waited(statistics) - waited)))
            self._report(max(self._late), max(self._blocked))


def _waited(statistics: Path) -> float:
    """Seconds that a thread has been ready to run and got no processor; 0 where nobody counts."""
    try:
        return int(statistics.read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0

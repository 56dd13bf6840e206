"""How late the event loop is: what blocks it delays every stream."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

STEP: Final = 0.02  # seconds between looks
KEPT: Final = 500  # looks that are remembered: ten seconds


class LagMeter:
    """Looks at the clock again and again; ``report`` hears the worst of the last seconds."""

    def __init__(self, report: Callable[[float], None]) -> None:
        self._report = report
        self._delays: deque[float] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            for _ in range(round(1 / STEP)):
                before = time.perf_counter()
                await asyncio.sleep(STEP)
                self._delays.append(max(0.0, time.perf_counter() - before - STEP))
            self._report(max(self._delays))

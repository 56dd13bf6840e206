"""Ctrl-C while an answer comes: the first one stops the answer, and every one is counted."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stopper:
    """Cancels a task once, whenever it is told to; ``press`` may be called from signal handlers and other threads."""

    def __init__(self) -> None:
        self.presses = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancel: Callable[[], object] = bool

    def watch(self) -> None:
        """From within a task: this is the one to cancel, at once if it was asked for before."""
        task = asyncio.current_task()
        assert task is not None
        self._cancel, self._loop = task.cancel, asyncio.get_running_loop()
        if self.presses:
            task.cancel()

    def press(self) -> None:
        """Cancel the task. Later calls only count: what the task cleans up is not interrupted."""
        self.presses += 1
        if self.presses == 1 and self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel)


@contextmanager
def on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Within, Ctrl-C calls ``stop`` in place of raising KeyboardInterrupt; on the main thread only."""

    def handle(number: int, frame: FrameType | None) -> None:
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

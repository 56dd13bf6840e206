"""One package of a server: its pipeline when it is loaded, who uses it, and what is told of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from genai_pipeline.pipeline import Pipeline
    from genai_pipeline.server.config import Served

State = Literal["unloaded", "loading", "loaded", "leaving"]


@dataclass(slots=True)
class Slot:
    """One package; used on one event loop."""

    served: Served
    pipe: Pipeline | None = None
    pins: int = 0
    used: float = 0.0
    nbytes: int = 0
    leaving: bool = False
    loading: asyncio.Task[None] | None = None
    waiting: list[asyncio.Future[Pipeline]] = field(default_factory=list)  # for it to be loaded
    loads: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def state(self) -> State:
        """What it is at, in one word."""
        if self.pipe is not None:
            return "leaving" if self.leaving else "loaded"
        return "unloaded" if self.loading is None else "loading"

    @property
    def graphs(self) -> list[dict[str, Any]]:
        """What runs each of its graphs, as plain JSON; nothing where it is not loaded."""
        pipe = self.pipe
        return [] if pipe is None else [graph.to_dict() for graph in pipe.placement]

    def stats(self) -> dict[str, Any]:
        """What it is at, with the figures of its engine where it is loaded; may run on any thread."""
        pipe, told = self.pipe, {"name": self.served.name, "state": self.state, "requests": self.pins}
        told |= {"loads": self.loads, **({"bytes": self.nbytes} if self.nbytes else {})}
        if pipe is None:
            return told
        return {**told, "providers": list(pipe.providers), "graphs": self.graphs, "engine": pipe.stats()}

    def pin(self) -> None:
        """One more request uses it."""
        self.pins += 1
        self.idle.clear()

    def unpin(self) -> None:
        """A request has ended."""
        self.pins -= 1
        self.used = time.monotonic()
        if self.pins == 0:
            self.idle.set()

    def tell(self, error: Exception) -> None:
        """Whoever waits gets the error; a request that has left does not."""
        for turn in self.waiting:
            if not turn.done():
                turn.set_exception(error)

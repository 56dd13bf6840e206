"""The packages of a server: loaded when first asked for, unloaded when room is needed, the longest unused first.

A package in use is pinned. What has to give way is marked, so that nobody new pins it, and unloaded when its last
request has ended; loading and unloading happen one after the other, so that memory is counted right.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import genai_pipeline as gp
from genai_pipeline.config import LoadOptions
from genai_pipeline.errors import CapacityError, GenaiError
from genai_pipeline.loading import require_runtime
from genai_pipeline.pipeline import Pipeline
from genai_pipeline.problems import nearest
from genai_pipeline.server.abilities import Abilities, abilities_of
from genai_pipeline.server.api_errors import ApiError, unavailable
from genai_pipeline.server.config import Served, ServerConfig
from genai_pipeline.server.footprint import footprint, load_arguments
from genai_pipeline.server.slots import Slot

BUSY_SECONDS: Final = 60.0  # that a package which has to give way may go on
RETRY_SECONDS: Final = 5

_log = logging.getLogger("genai_pipeline.server")


class PackageHost:
    """Gives pipelines by name; used on one event loop."""

    def __init__(self, config: ServerConfig) -> None:
        self._slots = {served.name: Slot(served) for served in config.packages}
        self._config = config
        self._limit = config.memory_bytes
        self._room = asyncio.Lock()  # whoever loads or unloads
        self._listeners: list[Callable[[str], None]] = []
        self._abilities: Mapping[str, Abilities] | None = None
        self.prepared = False  # what is loaded at the start was loaded

    @property
    def served(self) -> tuple[str, ...]:
        """The names that clients may use; the first one is the default."""
        return tuple(self._slots)

    def resolve(self, name: str | None) -> str:
        """The name of the package that a request means. Raises ApiError 404."""
        if not name:
            return self.served[0]
        if name not in self._slots:
            hint = nearest(name[:100], self._slots)
            message = f"the model '{name[:100]}' is not served here" + (f"; {hint}" if hint else "")
            raise ApiError(404, message, code="model_not_found", param="model")
        return name

    async def prepare(self) -> None:
        """Load what the configuration wants loaded at the start. Raises the error that prevents it.

        What a package that is loaded later is to run on must be here now.
        """
        for served in self._config.packages:
            await asyncio.to_thread(require_runtime, LoadOptions.of(**served.load))
        names = {"first": self.served[:1], "all": self.served, "none": ()}[self._config.preload]
        for name in names:
            await self.load(name)
        self.prepared = True

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncIterator[Pipeline]:
        """The pipeline of a package, which stays loaded meanwhile; it may be another one the next time.

        Raises ApiError 404 for a name that is not served, 503 where it cannot be loaded.
        """
        slot = self._slots[self.resolve(name)]
        pipe = await self._pinned(slot)
        try:
            yield pipe
        finally:
            slot.unpin()

    async def abilities(self) -> Mapping[str, Abilities]:
        """What every package can do, by its name, loaded or not."""
        if self._abilities is None:
            slots = self._slots.values()
            self._abilities = await asyncio.to_thread(lambda: {s.served.name: abilities_of(s.served) for s in slots})
        return self._abilities

    async def load(self, name: str) -> None:
        """Have a package loaded. Raises the error that prevents it."""
        async with self.use(name):
            pass

    async def unload(self, name: str) -> None:
        """Have a package unloaded, once its requests have ended. Raises ApiError 503 when they take too long."""
        slot = self._slots[self.resolve(name)]
        async with self._room:
            if slot.pipe is not None:
                await self._evict(slot)

    def on_unload(self, listener: Callable[[str], None]) -> None:
        """Have somebody told the name of each package that is unloaded, before it is; what holds on to it lets go."""
        self._listeners.append(listener)

    def stats(self) -> list[dict[str, Any]]:
        """What each package is at, with the figures of its engine where it is loaded; may run on any thread."""
        return [slot.stats() for slot in self._slots.values()]

    def graphs(self, name: str) -> list[dict[str, Any]]:
        """What runs each graph of a package, as plain JSON; nothing where it is not loaded."""
        return self._slots[name].graphs

    def is_loaded(self, name: str) -> bool:
        """Whether a request would find the package loaded."""
        return self._slots[name].state == "loaded"

    async def close(self) -> None:
        """Unload everything; requests that still run end with EngineClosedError."""
        loading = [slot.loading for slot in self._slots.values() if slot.loading is not None]
        await asyncio.gather(*loading, return_exceptions=True)
        for slot in self._slots.values():
            await self._drop(slot)

    async def _pinned(self, slot: Slot) -> Pipeline:
        """The pipeline, pinned. Who waits for it gets it pinned, so that nobody can unload it in between."""
        if slot.pipe is not None and not slot.leaving:
            slot.pin()
            return slot.pipe
        turn: asyncio.Future[Pipeline] = asyncio.get_running_loop().create_future()
        slot.waiting.append(turn)
        if slot.loading is None:
            slot.loading = asyncio.create_task(self._load(slot))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                slot.unpin()
            raise

    async def _load(self, slot: Slot) -> None:
        """Load a package and hand it to all who wait for it, or tell them why not."""
        try:
            pipe = await self._loaded(slot)
        except (GenaiError, ApiError) as error:
            _log_failure(slot, error)
            slot.tell(error)
        except Exception as error:  # noqa: BLE001 - logged, and told to whoever waits
            _log.exception("%s cannot be loaded", slot.served.name, extra={"event": "load_failed"})
            slot.tell(error)
        else:
            if slot.pins == 0:
                slot.idle.set()
            for turn in slot.waiting:
                if not turn.done():
                    slot.pin()
                    turn.set_result(pipe)
        finally:
            slot.waiting.clear()
            slot.loading = None

    async def _loaded(self, slot: Slot) -> Pipeline:
        """Load a package into memory that is there or is made free."""
        needed = await asyncio.to_thread(footprint, slot.served, self._limit)
        async with self._room:
            if slot.pipe is not None and not slot.leaving:
                return slot.pipe  # it was to leave, and stayed: its requests took too long
            await self._make_room(needed)
            started = time.monotonic()
            pipe = slot.pipe = await self._opened(slot)
            slot.nbytes, slot.loads, slot.leaving = needed, slot.loads + 1, False
            slot.used = time.monotonic()
        extra = {
            "event": "loaded",
            "model": slot.served.name,
            "seconds": round(slot.used - started, 3),
            **({"bytes": needed} if needed else {}),
        }
        _log.info("%s is loaded", slot.served.name, extra=extra)
        return pipe

    async def _opened(self, slot: Slot) -> Pipeline:
        """The pipeline; where memory is short, idle packages give way one after the other."""
        while True:
            try:
                pipe = await asyncio.to_thread(_open, slot.served, self._limit)
                break
            except CapacityError:
                idle = [other for other in self._by_age() if other.pins == 0]
                if not idle:
                    raise
                await self._evict(idle[0])
        if self._config.warm_up:
            await asyncio.to_thread(warm, pipe)
        return pipe

    async def _make_room(self, needed: int) -> None:
        """Unload until so many bytes fit. Raises ApiError 503 when they cannot."""
        if self._limit is None:
            return
        while sum(slot.nbytes for slot in self._slots.values()) + needed > self._limit:
            victims = self._by_age()
            if not victims:
                message = f"the model takes {needed >> 20} MiB; the memory for models holds {self._limit >> 20} MiB"
                raise unavailable(message, code="model_too_large")
            await self._evict(victims[0])

    def _by_age(self) -> list[Slot]:
        """The loaded packages in the order in which they give way: idle ones first, the longest unused first."""
        loaded = [slot for slot in self._slots.values() if slot.pipe is not None]
        return sorted(loaded, key=lambda slot: (slot.pins > 0, slot.used))

    async def _evict(self, slot: Slot) -> None:
        slot.leaving = True
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await slot.idle.wait()
        except TimeoutError:
            slot.leaving = False
            message = "other models are in use and there is no room for this one"
            raise unavailable(message, code="models_busy", retry_after=RETRY_SECONDS) from None
        await self._drop(slot)
        extra = {"event": "unloaded", "model": slot.served.name}
        _log.info("%s is unloaded", slot.served.name, extra=extra)

    async def _drop(self, slot: Slot) -> None:
        pipe, slot.pipe, slot.nbytes = slot.pipe, None, 0
        if pipe is not None:
            for listener in self._listeners:
                listener(slot.served.name)
            await asyncio.to_thread(pipe.close)


def _open(served: Served, limit: int | None) -> Pipeline:
    """Load a package, pulling a known name on first use."""
    return gp.load(served.package, precision=served.precision, **load_arguments(served, limit))


def warm(pipe: Pipeline) -> None:
    """Run one token, so that the first request does not pay for first runs; packages that take no text have none."""
    try:
        pipe.generate("a", raw=True, max_new_tokens=1)
    except GenaiError as error:
        extra = {"event": "not_warmed_up", "error": error.code, "reason": error.message}
        _log.info("no warm-up: %s", error.message, extra=extra)


def _log_failure(slot: Slot, error: GenaiError | ApiError) -> None:
    extra = {"event": "load_failed", "model": slot.served.name, "error": error.code, "reason": error.message}
    _log.error("%s cannot be loaded: %s", slot.served.name, error.message, extra=extra)

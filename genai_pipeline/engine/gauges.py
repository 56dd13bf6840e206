"""What telemetry reads when it is asked, not counts: queue, rows, pages by tier, the prefix cache, time in graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from genai_pipeline.backends.protocol import LoadedGraph
from genai_pipeline.engine.telemetry import Gauge
from genai_pipeline.kv.page_store import PageStore
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.scheduler.scheduler import Scheduler


def engine_gauges(
    scheduler: Scheduler,
    pools: Mapping[str, KvPool],
    stores: Iterable[PageStore],
    graphs: Mapping[str, LoadedGraph],
    *,
    prefix_cache: bool,
) -> dict[str, Gauge]:
    """The gauges of one engine; all may be read from any thread while it runs."""
    kept = tuple(stores)
    found: dict[str, Gauge] = {
        "queue": lambda: scheduler.num_waiting,
        "running": lambda: scheduler.num_running,
        "pages": lambda: {"arena": _arena(pools), **_tiers(kept)},
        "graph_seconds": lambda: {name: graph.graph_seconds for name, graph in graphs.items()},
    }
    return {**found, "prefix": lambda: _prefix(kept)} if prefix_cache else found


def _arena(pools: Mapping[str, KvPool]) -> dict[str, Any]:
    usages = [pool.usage() for pool in pools.values()]
    resident = [usage.resident_bytes for usage in usages]
    return {
        "used": sum(usage.pages for usage in usages),
        "free": sum(usage.num_pages - usage.pages for usage in usages),
        "resident_bytes": None if None in resident else sum(size or 0 for size in resident),
    }


def _tiers(stores: Iterable[PageStore]) -> dict[str, Any]:
    usages = [store.usage() for store in stores]
    return {
        "host": {
            "used": sum(usage.host_pages for usage in usages),
            "bytes": sum(usage.host_bytes for usage in usages),
            "budget_bytes": sum(usage.budget_bytes for usage in usages),
            "swapped_sequences": sum(usage.swapped for usage in usages),
            "exact": all(usage.exact for usage in usages),
        },
        "disk": {
            "used": sum(usage.disk_pages for usage in usages),
            "bytes": sum(usage.disk_bytes for usage in usages),
        },
    }


def _prefix(stores: Iterable[PageStore]) -> dict[str, int]:
    usages = [store.usage() for store in stores]
    names = ("hits", "misses", "hit_tokens", "inserted_pages", "evictions", "demotions", "promotions")
    return {name: sum(getattr(usage, name) for usage in usages) for name in names}

"""Metrics for Prometheus: requests as the server sees them, and the figures of every loaded package's engine.

The only module that imports prometheus_client. Figures of engines are read when somebody asks; docs/telemetry.md has
their names.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from genai_pipeline.server.exchange import Exchange
from genai_pipeline.server.packages import PackageHost

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
STATES: Final = ("unloaded", "loading", "loaded", "leaving")

# Figures of an engine whose last parts are values of labels, and the names of these labels.
_LABELS: Final = {
    ("requests", "finished"): ("reason",),
    ("runs",): ("kind",),
    ("rows",): ("kind", "rows"),
    ("preemptions",): ("by",),
    ("graph_seconds",): ("component",),
}
_GAUGES: Final = frozenset({"uptime_seconds", "queue", "running", "pages"})


class Metrics:
    """The metrics of one server."""

    def __init__(self, host: PackageHost) -> None:
        self.started = int(time.time())
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second figure for each counter, which nobody asked for
        self._registry = CollectorRegistry()
        kept: dict[str, Any] = {"registry": self._registry, "namespace": "genai_http"}
        self._requests = Counter("requests", "Requests by route and status.", ("method", "route", "status"), **kept)
        self._seconds = Histogram("request_seconds", "Time of requests.", ("route",), buckets=SECONDS, **kept)
        self._first = Histogram("first_token_seconds", "Time to the first token.", ("model",), buckets=SECONDS, **kept)
        self._tokens = Counter("tokens", "Tokens of requests that ended.", ("model", "kind"), **kept)
        late = "Longest delay of the event loop in the last ten seconds."
        blocked = "The same without the time in which no processor was to be had."
        self._late = Gauge("loop_lag_seconds", late, **kept)
        self._blocked = Gauge("loop_blocked_seconds", blocked, **kept)
        self._registry.register(_Engines(host))

    def ended(self, exchange: Exchange) -> None:
        """Count a request that has ended."""
        self._requests.labels(exchange.method, exchange.route, str(exchange.status)).inc()
        self._seconds.labels(exchange.route).observe(exchange.seconds)
        if exchange.model is None:
            return
        if exchange.first_token is not None:
            self._first.labels(exchange.model).observe(exchange.first_token)
        if exchange.usage is not None:
            self._tokens.labels(exchange.model, "prompt").inc(exchange.usage.prompt_tokens)
            self._tokens.labels(exchange.model, "completion").inc(exchange.usage.completion_tokens)

    def lagged(self, late: float, blocked: float) -> None:
        """Take note of how late the event loop was at worst, in seconds; see ``lag``."""
        self._late.set(late)
        self._blocked.set(blocked)

    def text(self) -> bytes:
        """Everything in Prometheus's text format; may run on any thread."""
        return generate_latest(self._registry)


class _Engines(Collector):
    """Reads the figures of loaded packages."""

    def __init__(self, host: PackageHost) -> None:
        self._host = host

    def collect(self) -> Iterator[Metric]:
        """All families, each once, with one sample per package and label."""
        packages = self._host.stats()
        families: dict[str, Metric] = {}
        state = GaugeMetricFamily("genai_model_state", "1 for what a model is at.", labels=("model", "state"))
        for package in packages:
            for name in STATES:
                state.add_metric((package["name"], name), float(package["state"] == name))
            for path, value in _figures(package.get("engine", {}), ()):
                _add(families, package["name"], path, value)
        yield state
        yield from families.values()


def _figures(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _figures(value, (*path, name))
        elif isinstance(value, int | float):
            yield (*path, name), float(value)


def _add(families: dict[str, Metric], model: str, path: tuple[str, ...], value: float) -> None:
    """One sample: the last parts of the path become labels where docs/telemetry.md has them in angle brackets."""
    stem: tuple[str, ...] = path
    labels: tuple[str, ...] = ()
    for prefix, names in _LABELS.items():
        if path[: len(prefix)] == prefix and len(path) == len(prefix) + len(names):
            stem, labels = prefix, names
    name = "genai_" + "_".join(stem)
    family = families.get(name)
    if family is None:
        kind = GaugeMetricFamily if path[0] in _GAUGES else CounterMetricFamily
        family = families[name] = kind(name, f"See {'.'.join(stem)} of the telemetry.", labels=("model", *labels))
    family.add_metric((model, *path[len(stem) :]), value)  # type: ignore[attr-defined]

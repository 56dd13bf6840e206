"""Where the nodes of graphs run: what was asked for and not met, for one graph, and the whole of it for people."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from genai_pipeline.backends.protocol import LoadedGraph

CPU: Final = "cpu"
_EXAMPLES: Final = 4  # operators that are named

_log = logging.getLogger("genai_pipeline.placement")


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What of the providers that were asked for a graph was not met.

    ``missing``: those that are not there, and why. ``unused``: those that were loaded and run no node. ``fallen``:
    nodes by operator that the CPU runs although another provider was the first choice, the most frequent first.
    """

    missing: Mapping[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    fallen: Mapping[str, int] = field(default_factory=dict)

    def texts(self, component: str, placement: Mapping[str, int]) -> Iterator[str]:
        """Each in a sentence; ``placement``: nodes by provider."""
        for name, why in self.missing.items():
            yield f"component '{component}' goes without {name}, using {', '.join(placement)}: {why}"
        for name in self.unused:
            yield f"provider '{name}' was loaded but runs no node of '{component}'"
        if self.fallen:
            count, total = sum(self.fallen.values()), sum(placement.values())
            yield f"{count} of the {total} nodes of '{component}' run on the cpu: {self.examples}"

    @property
    def examples(self) -> str:
        """Operators that fell to the CPU, as far as a line holds them."""
        named = [f"{count} {operator}" for operator, count in list(self.fallen.items())[:_EXAMPLES]]
        return ", ".join(named) + (", ..." if len(self.fallen) > _EXAMPLES else "")


@dataclass(frozen=True, slots=True)
class GraphPlacement:
    """What one graph of a package runs on: ``nodes`` by provider, ``notes`` on all that its load did otherwise.

    ``passed_over``: why a variant for a provider that was asked for first is not used.
    """

    package: str
    component: str
    model: str  # the graph's file, as the package names it
    backend: str
    version: str
    nodes: Mapping[str, int]
    shortfall: Shortfall = field(default_factory=Shortfall)
    passed_over: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(
        graph: LoadedGraph,
        *,
        package: str,
        component: str,
        model: str,
        version: str,
        passed_over: tuple[str, ...] = (),
    ) -> GraphPlacement:
        """That of a loaded graph; ``version``: of the backend's runtime."""
        placement = dict(graph.placement)
        notes = (*passed_over, *graph.notes)
        return GraphPlacement(
            package, component, model, graph.backend, version, placement, graph.shortfall, passed_over, notes
        )

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers that really run nodes of it, the first choice first."""
        return tuple(self.nodes)

    @property
    def fell_to_cpu(self) -> int:
        """Nodes that the CPU runs although another provider was the first choice."""
        return sum(self.shortfall.fallen.values())

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready fields."""
        return {
            "package": self.package,
            "component": self.component,
            "model": self.model,
            "backend": self.backend,
            "version": self.version,
            "providers": dict(self.nodes),
            "fell_to_cpu": self.fell_to_cpu,
            "cpu_operators": dict(self.shortfall.fallen),
            "unused_providers": list(self.shortfall.unused),
            "missing_providers": dict(self.shortfall.missing),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        """In one line, for people."""
        nodes = ", ".join(
            f"{count} {'node' if count == 1 else 'nodes'} on {name}" for name, count in self.nodes.items()
        )
        fallen = f"; fell to the cpu: {self.shortfall.examples}" if self.fell_to_cpu else ""
        unused = f"; without a node: {', '.join(self.shortfall.unused)}" if self.shortfall.unused else ""
        missing = f"; not available: {', '.join(self.shortfall.missing)}" if self.shortfall.missing else ""
        return f"{self.component} ({self.model}): {self.backend} {self.version}, {nodes}{fallen}{unused}{missing}"

    def log(self) -> None:
        """Warn of what was asked for and not met, a line each."""
        passed = (f"component '{self.component}' goes without: {why}" for why in self.passed_over)
        for text in (*passed, *self.shortfall.texts(self.component, self.nodes)):
            _log.warning("%s", text, extra={"event": "placement", "component": self.component})

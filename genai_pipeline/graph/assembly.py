"""From checked scopes to the frozen plan: order, side-by-side levels, liveness, batch keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import networkx as nx

from genai_pipeline.graph.liveness import Live
from genai_pipeline.graph.plan import ComponentPlan, ScopePlan, StagePlan, bound_ports
from genai_pipeline.graph.scope import Read, Scope, StageNode
from genai_pipeline.graph.scopes import CHOICE, stage_node
from genai_pipeline.metadata.expressions import Literal

_DROPPED = ("input", "item", "stage")  # origins of values that are worth freeing


class Assembler:
    """Builds scope plans; everything it is given has passed the checks."""

    def __init__(
        self, graphs: Mapping[str, nx.DiGraph[str]], live: Live, components: Mapping[str, ComponentPlan]
    ) -> None:
        self.graphs = graphs
        self.live = live
        self.components = components

    def scope_plan(self, scope: Scope) -> ScopePlan:
        """The plan of a scope and of those below it; stages that no output depends on are left out."""
        nodes = {node.id: node for node in scope.nodes if node in self.live.stages}
        chosen = self._after_choice(scope)
        levels = _levels(self.graphs[scope.id], nodes, chosen)
        order = [stage for level in levels for stage in level]
        drops = self._drops(scope, [nodes[stage] for stage in order])
        stages = tuple(self._stage_plan(nodes[stage], drops.get(stage, ()), stage in chosen) for stage in order)
        return ScopePlan(
            id=scope.id,
            kind=scope.kind,
            stages=stages,
            levels=levels,
            publishes=self._publishes(scope),
            reads=_keys(scope.ends),
        )

    def _stage_plan(self, node: StageNode, drop_after: tuple[str, ...], after_choice: bool) -> StagePlan:
        body = self.scope_plan(node.body) if node.body is not None else None
        results = [read for read in (node.body.ends if node.body else ()) if read.use.port in ("logits", "tokens")]
        each = next((read.value.key for read in node.reads if read.use.port == "for_each"), None)
        return StagePlan(
            id=node.id,
            spec=node.spec,
            reads={**_keys(results), **_keys(node.reads)},
            outputs={port: value.key for port, value in node.published() if value.key in self.live.keys},
            drop_after=drop_after,
            after_choice=after_choice,
            batch_key=self._batch_key(node),
            body=body,
            each=each,
        )

    def _after_choice(self, scope: Scope) -> frozenset[str]:
        """Ids of the stages that depend on the chosen token."""
        graph = self.graphs[scope.id]
        if CHOICE not in graph:
            return frozenset()
        after = nx.descendants(graph, CHOICE)
        return frozenset(node.id for node in scope.nodes if stage_node(node.id) in after)

    def _drops(self, scope: Scope, order: list[StageNode]) -> dict[str, tuple[str, ...]]:
        """Stage id -> keys of this scope that it reads last and that nobody needs after the step."""
        kept = {read.value.key for read in scope.ends} | set(self._publishes(scope).values())
        last: dict[str, str] = {}
        for node in order:
            for read in node.outer_reads():
                if read.owner is scope and read.value.origin in _DROPPED and read.value.key not in kept:
                    last[read.value.key] = node.id
        found: dict[str, list[str]] = {}
        for key, stage in last.items():
            found.setdefault(stage, []).append(key)
        return {stage: tuple(keys) for stage, keys in found.items()}

    def _publishes(self, scope: Scope) -> dict[str, str]:
        """Name outside -> key inside, of what somebody outside reads."""
        if scope.parent is None or scope.stage is None:
            return {}
        outer = next(node for around in scope.chain() for node in around.nodes if node.body is scope)
        published = (value for _, value in outer.published())
        return {v.name: v.inner for v in published if v.inner is not None and v.key in self.live.keys}

    def _batch_key(self, node: StageNode) -> tuple[str, ...]:
        """Ports without a batch axis that are fed anything but a literal, and all that are declared to have none."""
        component = self.components.get(node.spec.run or "")
        if component is None:
            return ()
        declared, inputs = component.spec.no_batch_axis, component.signature.inputs
        return tuple(
            port
            for port, binding in bound_ports(node.spec)
            if port in inputs and (port in declared or not (isinstance(binding.expr, Literal) or inputs[port].batched))
        )


def _keys(reads: Iterable[Read]) -> dict[str, str]:
    """Name -> key of reads, less the pseudo values for state and the list of a ``for_each``."""
    return {read.name: read.value.key for read in reads if read.value.origin != "state" and read.use.port != "for_each"}


def _levels(
    graph: nx.DiGraph[str], nodes: Mapping[str, StageNode], chosen: frozenset[str]
) -> tuple[tuple[str, ...], ...]:
    """Stage ids by generation, in file order within one; what needs the chosen token comes after all others."""
    place = {stage: index for index, stage in enumerate(nodes)}
    order: nx.DiGraph[str] = nx.DiGraph()
    order.add_nodes_from(nodes)
    for stage in nodes:
        for value in graph.successors(stage_node(stage)):
            readers = (target.removeprefix("stage:") for target in graph.successors(value))
            order.add_edges_from((stage, reader) for reader in readers if reader in nodes)
    order.add_edges_from((stage, late) for late in chosen if late in nodes for stage in nodes if stage not in chosen)
    return tuple(tuple(sorted(level, key=place.__getitem__)) for level in nx.topological_generations(order))

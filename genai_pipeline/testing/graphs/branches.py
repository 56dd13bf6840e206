"""Closed-form decoders split as exporters split them: a graph for first runs, one for later runs, both in one ``If``.

The graph for first runs knows no past. That for later runs was traced with one new token: it answers wrongly when it
gets several. A merged graph takes ``use_cache_branch`` (bool [1]), which is true for later runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from genai_pipeline.testing.builder import Dim, GraphBuilder, Value
from genai_pipeline.testing.graphs.decoder import Decoder

SWITCH: Final = "use_cache_branch"
_PASTS: Final = ("past_key_values.", "cross_key_values.")


def first_graph(decoder: Decoder) -> GraphBuilder:
    """The decoder without the ports of its past."""
    b = _FirstRun("first", decoder.cache.opset)
    decoder.write(b)
    return b


def later_graph(decoder: Decoder) -> GraphBuilder:
    """The decoder as it was traced with one new token on a past."""
    b = _LaterRun("later", decoder.cache.opset)
    decoder.write(b)
    return b


def merged_graph(decoder: Decoder) -> GraphBuilder:
    """Both as branches of one graph, with the ports of the later one and the switch."""
    b = GraphBuilder("merged", decoder.cache.opset)
    switch = b.input(SWITCH, "bool", [1])
    later, first = _LaterBranch(b, "later/"), _FirstBranch(b, "first/")
    for branch in (later, first):
        decoder.write(branch)
    branches: dict[str, Any] = {"then_branch": b.subgraph(later), "else_branch": b.subgraph(first)}
    values = b.ops("If", switch, count=len(later.declared), **branches)
    for (name, dtype, shape), value in zip(later.declared, values, strict=True):
        b.output(name, value, dtype, shape)
    return b


class _FirstRun(GraphBuilder):
    """A graph whose pasts are no ports but empty."""

    def input(self, name: str, dtype: str, shape: Sequence[Dim]) -> Value:
        """See GraphBuilder.input."""
        if not name.startswith(_PASTS):
            return super().input(name, dtype, shape)
        tokens = self.port("input_ids")
        assert tokens is not None, "decoders declare their tokens first"
        size = self.op("Concat", self.size(tokens, 0), [shape[1], 0, shape[3]], axis=0)
        return self.op("Expand", self.const(0, dtype), size)


class _LaterRun(GraphBuilder):
    """A graph that answers rightly when it gets one new token."""

    def output(self, name: str, value: Value, dtype: str, shape: Sequence[Dim]) -> None:
        """See GraphBuilder.output."""
        if name == "logits":
            tokens = self.port("input_ids")
            assert tokens is not None, "decoders declare their tokens first"
            value = self.op("Where", self.op("Equal", self.size(tokens, 1), 1), value, self.op("Neg", value))
        super().output(name, value, dtype, shape)


class _Branch(GraphBuilder):
    """A branch: its inputs are those of the graph around it, its outputs those of the condition."""

    def __init__(self, around: GraphBuilder, prefix: str) -> None:
        super().__init__(prefix.strip("/"), prefix=prefix)
        self._around = around
        self.declared: list[tuple[str, str, Sequence[Dim]]] = []

    def input(self, name: str, dtype: str, shape: Sequence[Dim]) -> Value:
        """An input of the graph around; both branches have it."""
        return self._around.port(name) or self._around.input(name, dtype, shape)

    def port(self, name: str) -> Value | None:
        """See GraphBuilder.port."""
        return self._around.port(name)

    def output(self, name: str, value: Value, dtype: str, shape: Sequence[Dim]) -> None:
        """An output of the condition."""
        self.declared.append((name, dtype, shape))
        if value.producer() is None:  # a branch gives values of its own only
            value = self.op("Identity", value)
        super().output(f"{self._prefix}{name}", value, dtype, shape)


class _FirstBranch(_FirstRun, _Branch):
    """The branch of first runs."""


class _LaterBranch(_LaterRun, _Branch):
    """The branch of later runs."""

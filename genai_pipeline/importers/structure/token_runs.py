"""How many tokens the runs of a decoder may take, from its graph: the ``span`` of its component.

Exporters trace a decoder twice, once without a past on a prompt, once with a past on one token. What the second trace
does with several tokens is not said: a mask that one token has no use for may be missing. So the graph or branch
without a past gets the prompt whole, the other one gets single tokens, unless its attention is causal by definition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from genai_pipeline.graph.signature import Dim, Port
from genai_pipeline.importers.structure.graph_facts import GraphFacts

ONE: Final[dict[str, Any]] = {"first": 1, "later": 1}
WHOLE_THEN_ONE: Final[dict[str, Any]] = {"first": "whole", "later": 1}


def merged_span(facts: GraphFacts, switch: str, pasts: Iterable[str], presents: Collection[str]) -> dict[str, Any]:
    """The ``span`` of a graph of both decoders between which ``switch`` chooses (true: with a past); {}: any number.

    ``presents``: outputs of the state that grows with tokens.
    """
    found = facts.switches.get(switch)
    if found is None or not found.false_reads.isdisjoint(pasts):
        return ONE  # nothing says that its first run may take a prompt whole
    return {} if presents and found.true_causal >= set(presents) else WHOLE_THEN_ONE


def single_span(_: GraphFacts, tokens: Port, __: Collection[str]) -> dict[str, Any]:
    """The ``span`` of a graph that was traced on prompts and takes a past, too; {}: any number."""
    return ONE if takes_one(tokens.shape) else {}


def pair_span(later: GraphFacts, tokens: Port, presents: Collection[str]) -> dict[str, Any]:
    """The ``span`` of two graphs, where ``tokens`` is the port of the later one; {}: any number."""
    return {} if _takes_several(later, tokens, presents) else WHOLE_THEN_ONE


def lone_span(later: GraphFacts, tokens: Port, presents: Collection[str]) -> dict[str, Any]:
    """The ``span`` of a graph that was traced with a past, without one for first runs; {}: any number."""
    return {} if _takes_several(later, tokens, presents) else ONE


def _takes_several(later: GraphFacts, tokens: Port, presents: Collection[str]) -> bool:
    return bool(presents) and later.causal >= set(presents) and not takes_one(tokens.shape)


def takes_one(shape: tuple[Dim, ...] | None) -> bool:
    """Whether a port of tokens or embeddings [batch, sequence, ...] has room for one token."""
    return shape is not None and len(shape) > 1 and shape[1] == 1

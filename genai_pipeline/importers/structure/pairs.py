"""A decoder in two graphs, one for the first run of a sequence and one for later runs, as one part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from genai_pipeline.graph.signature import GraphSignature, joined
from genai_pipeline.importers.structure.findings import certain
from genai_pipeline.importers.structure.graph_facts import GraphFacts
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.port_families import families, same_tensors
from genai_pipeline.importers.structure.states import State
from genai_pipeline.importers.structure.token_runs import takes_one

# What only a graph for first runs needs to read: later ones have what it made of it as state.
_OF_THE_SOURCE = frozenset({"source", "source_mask", "rows"})


def with_pairs(parts: Sequence[Part]) -> list[Part]:
    """The parts, the two decoders that are one as one part; more than one such choice leaves them apart."""
    decoders = [part for part in parts if part.kind == "decoder"]
    pairs = [(one, two, pair) for one in decoders for two in decoders if (pair := _pair(one, two)) is not None]
    if len(pairs) != 1:
        return list(parts)
    ((first, later, pair),) = pairs
    return [pair if part is later else part for part in parts if part is not first]


def _pair(first: Part, later: Part) -> Part | None:
    """Both graphs as one part, when the one gives the caches that the other takes.

    The one takes no cache itself, or it takes any number of tokens where the other has room for one.
    """
    if first is later or not later.grown or not later.grown <= first.facts.outputs.keys():
        return None
    if first.states and not (takes_single(later) and not takes_single(first)):
        return None
    if first.logits is None or later.logits is None or first.logits.value != later.logits.value:
        return None
    more = [name for name in first.inputs if name not in later.inputs]
    if any(first.inputs[name].value not in _OF_THE_SOURCE for name in more):
        return None
    if not _agree(first.facts.signature, later.facts.signature):
        return None
    return replace(
        later,
        first=first.facts,
        facts=_joined(first.facts, later.facts),
        states=tuple(_captured(later.states, first)),
        inputs={**first.inputs, **later.inputs},
        later=later.facts,
    )


def takes_single(part: Part) -> bool:
    """Whether a decoder has room for one new token."""
    name = part.port_of("tokens") or part.port_of("embeds")
    return name is not None and takes_one(part.facts.inputs[name].shape)


def _agree(first: GraphSignature, later: GraphSignature) -> bool:
    """Whether ports of one name have one type."""
    sides: tuple[tuple[Mapping[str, object], ...], ...] = ((first.inputs, later.inputs), (first.outputs, later.outputs))
    return all(
        getattr(one[name], "dtype", None) == getattr(two[name], "dtype", None)
        for one, two in sides
        for name in one.keys() & two.keys()
    )


def _joined(first: GraphFacts, later: GraphFacts) -> GraphFacts:
    return replace(
        later,
        signature=joined(first.signature, later.signature),
        readers={**first.readers, **later.readers},
        writers={**first.writers, **later.writers},
    )


def _captured(states: Sequence[State], first: Part) -> Iterator[State]:
    """The states; one that later runs only read is what the first run gives."""
    given = families(first.facts.outputs.values())
    for state in states:
        fits = [family for family in given if family.words == state.past.words and same_tensors(state.past, family)]
        if state.present is None and len(fits) == 1:
            yield replace(state, present=fits[0], update=certain("fixed", "the graph for first runs gives it"))
        else:
            yield state

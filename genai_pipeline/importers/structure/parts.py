"""The graphs of a folder as parts of a model: what each one is by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.structure.findings import Finding
from genai_pipeline.importers.structure.graph_facts import GraphFacts
from genai_pipeline.importers.structure.ports import FLOATS, input_meanings, logits_of
from genai_pipeline.importers.structure.states import State, find_states
from genai_pipeline.importers.structure.token_runs import ONE, merged_span, pair_span, takes_one

Kind = Literal["decoder", "embed", "encoder", "joiner", "recurrent", "unknown"]


@dataclass(frozen=True, slots=True)
class Part:
    """One graph: its states, the meanings of its other inputs, its logits, and what it seems to be.

    A decoder in two graphs has ``first`` and ``later``, and in ``facts`` the ports of both.
    """

    facts: GraphFacts
    kind: Kind
    states: tuple[State, ...]
    inputs: Mapping[str, Finding]
    logits: Finding | None
    first: GraphFacts | None = None
    later: GraphFacts | None = None

    @property
    def rows(self) -> tuple[Port, ...]:
        """Outputs that other graphs or operations can read: floats, and neither state nor logits."""
        taken = {name for state in self.states for name in state.ports}
        ports = (port for name, port in self.facts.outputs.items() if name not in taken)
        return tuple(port for port in ports if port.dtype in FLOATS)

    @property
    def span(self) -> dict[str, Any]:
        """How many tokens its runs may take; {}: any number."""
        tokens, switch = self.port_of("tokens") or self.port_of("embeds"), self.port_of("later")
        if self.later is not None and tokens is not None:
            return pair_span(self.later, self.later.inputs[tokens], self.grown)
        if tokens is not None and self.states and takes_one(self.facts.inputs[tokens].shape):
            return ONE
        if switch is None:
            return {}
        pasts = [port.name for state in self.states for port in state.past.ports.values()]
        return merged_span(self.facts, switch, pasts, self.grown)

    @property
    def grown(self) -> frozenset[str]:
        """The outputs of state that grows with tokens."""
        grown = (state.present for state in self.states if state.update.value in ("append", "in_place", "scatter"))
        return frozenset(port.name for present in grown if present for port in present.ports.values())

    def port_of(self, meaning: str) -> str | None:
        """The input of that meaning."""
        return next((name for name, finding in self.inputs.items() if finding.value == meaning), None)


def read_part(facts: GraphFacts, vocabulary: int | None) -> Part:
    """What one graph is, by itself."""
    states = find_states(facts)
    inputs = input_meanings(facts, states)
    logits = logits_of(facts, states, vocabulary)
    return Part(facts, _kind(facts, states, inputs, logits), states, inputs, logits)


def _kind(facts: GraphFacts, states: Sequence[State], inputs: Mapping[str, Finding], logits: Finding | None) -> Kind:
    meanings = [finding.value for finding in inputs.values()]
    rows = [name for name, finding in inputs.items() if finding.value in ("rows", "features", "source", "embeds")]
    if logits is not None:
        if "tokens" in meanings or "embeds" in meanings or (states and rows):
            return "decoder"
        return "joiner" if len(rows) > 1 else "encoder"
    if any(state.present is not None for state in states):
        return "recurrent"
    if meanings == ["tokens"] and [len(port.shape or ()) for port in facts.outputs.values()] == [3]:
        return "embed"
    return "encoder" if inputs and not states else "unknown"

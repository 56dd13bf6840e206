"""State of a graph: inputs that come back as outputs, and how they are updated, from names, sizes and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from genai_pipeline.graph.signature import Dim, Port
from genai_pipeline.importers.structure.findings import Finding, certain, unclear
from genai_pipeline.importers.structure.graph_facts import GraphFacts
from genai_pipeline.importers.structure.port_families import Family, families, open_axes, same_tensors

_IN_PLACE = frozenset({"GroupQueryAttention", "DecoderMaskedMultiHeadAttention"})
_APPEND = frozenset({"Concat", "Attention", "MultiHeadAttention"})
_SCATTER = frozenset({"TensorScatter", "ScatterElements", "ScatterND", "Scatter"})
# Nodes that make a state of one size from the state before: linear attention, convolutions, recurrent cells.
_REPLACE = frozenset({"LinearAttention", "CausalConvWithState", "RNN", "GRU", "LSTM"})
_FLOATS = frozenset({"float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2"})
_CACHE_RANK, _FLAT_RANK = 4, 3
_CROSS_WORDS = frozenset({"cross", "encoder", "enc"})


@dataclass(frozen=True, slots=True)
class State:
    """One entry of ``kv``: ``present`` None: the graph reads it and never writes it, so another graph gives it."""

    past: Family
    present: Family | None
    pairing: Finding
    update: Finding

    @property
    def ports(self) -> tuple[str, ...]:
        """The names of its inputs and outputs."""
        sides = [self.past, *([self.present] if self.present else [])]
        return tuple(port.name for side in sides for port in side.ports.values())

    @property
    def capacity(self) -> int | None:
        """How many tokens fit, where the graph fixes it: a buffer that is written in place."""
        shape = self.past.shape or ()
        if self.update.value not in ("scatter", "in_place") or len(shape) not in (_FLAT_RANK, _CACHE_RANK):
            return None
        heads, length = (1, shape[1]) if len(shape) == _FLAT_RANK else shape[1:3]
        return length if isinstance(heads, int) and isinstance(length, int) else None

    @property
    def flat(self) -> int | None:
        """The width of rows [batch, length, width] that a buffer holds, all heads side by side; None: other axes."""
        shape = self.past.shape or ()
        if self.update.value != "scatter" or len(shape) != _FLAT_RANK:
            return None
        return shape[2] if isinstance(shape[2], int) else None


def find_states(facts: GraphFacts) -> tuple[State, ...]:
    """The states of a graph, in the order of its inputs."""
    pasts = families(port for port in facts.inputs.values() if _can_be_state(port))
    presents = list(families(port for port in facts.outputs.values() if _can_be_state(port)))
    pairs = _by_name(pasts, presents)
    rest = [past for past in pasts if past.pattern not in pairs]
    free = [family for family in presents if all(family is not taken for taken, _ in pairs.values())]
    pairs.update((past.pattern, pair) for past, pair in _by_sizes(rest, free))
    found = []
    for past in pasts:
        if past.pattern in pairs:
            present, pairing = pairs[past.pattern]
            found.append(State(past, present, pairing, update_of(facts, past, present)))
        elif _is_cache(past) and not facts.unread.issuperset(port.name for port in past.ports.values()):
            reason = f"'{past.pattern}' is a cache that the graph reads and does not write"
            found.append(State(past, None, certain("", reason), certain("fixed", "nothing writes it")))
    return tuple(found)


def update_of(facts: GraphFacts, past: Family, present: Family) -> Finding:
    """How a state becomes the next: by the nodes that write it, else by its sizes."""
    writers = frozenset[str]().union(*(facts.writers.get(port.name, ()) for port in present.ports.values()))
    shown = " and ".join(sorted(writer or "nothing" for writer in writers))
    if writers == {"TensorScatter"}:
        return certain("scatter", "written by TensorScatter, at the index it is given")
    if len(open_axes(past)) <= 1 and not _is_cache(past):
        return certain("replace", "its size does not depend on the tokens")
    if writers and writers <= _REPLACE:
        return certain("replace", f"written by {shown}")
    if "" in writers or _follows_source(facts, present):
        return certain("fixed", "it comes back as it is, or has the length of what another graph gave")
    for update, ops in (("in_place", _IN_PLACE), ("append", _APPEND), ("scatter", _SCATTER)):
        if writers and writers <= ops:
            return certain(update, f"written by {shown}")
    return _update_by_sizes(past, present, shown)


def _update_by_sizes(past: Family, present: Family, writers: str) -> Finding:
    before, after = past.shape or (), present.shape or ()
    differ = [a for a, b in zip(before, after, strict=False) if a != b and isinstance(a, str) and isinstance(b, str)]
    if differ and len(before) == _CACHE_RANK and all(differ):
        return certain("append", "what comes back is longer than what goes in")
    return unclear(f"how is the state '{past.pattern}' updated (written by {writers or 'unknown nodes'})?",
                   "in_place", "append", "scatter", "replace", "fixed")  # fmt: skip


def _follows_source(facts: GraphFacts, present: Family) -> bool:
    """Whether the state has as many tokens as rows that come in: a size that a matrix of floats shares with it."""
    axes = [dim for dim in (present.shape or ())[1:3] if dim]
    sources = (port for port in facts.inputs.values() if port.dtype in _FLOATS and port.shape and len(port.shape) == 3)
    shared = any(port.shape and port.shape[1] in axes for port in sources)
    return shared and bool(_CROSS_WORDS & present.words)


def _by_name(pasts: Sequence[Family], presents: Sequence[Family]) -> dict[str, tuple[Family, Finding]]:
    """Pairs whose names say the same but for their side."""
    found: dict[str, tuple[Family, Finding]] = {}
    for past in pasts:
        fits = [present for present in presents if present.words == past.words and same_tensors(past, present)]
        rivals = [other for other in pasts if other.words == past.words and same_tensors(past, other)]
        if len(fits) == 1 and len(rivals) == 1 and (past.says_state or len(open_axes(past)) <= 1):
            found[past.pattern] = (fits[0], certain(fits[0].pattern, "names and sizes agree"))
    return found


def _by_sizes(pasts: Iterable[Family], presents: Sequence[Family]) -> Iterable[tuple[Family, tuple[Family, Finding]]]:
    """Pairs that nothing but their sizes tells, where there is one choice."""
    pasts = list(pasts)
    for past in pasts:
        fits = [present for present in presents if same_tensors(past, present)]
        rivals = [other for other in pasts if same_tensors(past, other)]
        if len(fits) != 1 or len(rivals) != 1 or not (_is_cache(past) or _is_fixed(past.shape)):
            continue
        if past.says_state or _is_cache(past):
            yield past, (fits[0], certain(fits[0].pattern, "the only output of its sizes"))
        else:
            reason = f"is '{past.pattern}' a state that '{fits[0].pattern}' replaces, or an input of its own?"
            yield past, (fits[0], Finding("a state", "likely", reason, ("an input",)))


def _is_cache(family: Family) -> bool:
    """Keys and values: four axes, and at least two parts or the word."""
    parts = {part for _, part in family.ports}
    return len(family.shape or ()) == _CACHE_RANK and (len(parts) > 1 or family.says_state)


def _is_fixed(shape: tuple[Dim, ...] | None) -> bool:
    """Whether all sizes but one are numbers."""
    return shape is not None and len(shape) > 1 and sum(not isinstance(dim, int) for dim in shape) <= 1


def _can_be_state(port: Port) -> bool:
    return port.dtype in _FLOATS and (port.shape is None or len(port.shape) > 1)

"""What the other ports of a graph mean: tokens, masks, positions, lengths, embeddings, rows of another graph, logits.

A meaning is certain when the node that reads the port says so, when the port's name is a usual one and its dtype and
rank agree, or when the structure leaves one choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from genai_pipeline.graph.signature import Dim, Port
from genai_pipeline.importers.structure.findings import Finding, certain, unclear
from genai_pipeline.importers.structure.graph_facts import GraphFacts, Reader
from genai_pipeline.importers.structure.states import State

INTEGERS = frozenset({"int64", "int32"})
FLOATS = frozenset({"float32", "float16", "bfloat16", "float64"})
_MASKS = INTEGERS | FLOATS | {"bool"}

# Input of a node -> meaning: nodes whose inputs have one meaning by their definition.
_BY_READER: Mapping[Reader, str] = {
    ("GroupQueryAttention", 5): "last_index",
    ("GroupQueryAttention", 6): "longest",
    ("TensorScatter", 2): "write_indices",
    ("Attention", 6): "total_length",
}


@dataclass(frozen=True, slots=True)
class _Usual:
    """A usual name for a port of that meaning, with the dtypes and ranks it can have."""

    meaning: str
    names: re.Pattern[str]
    dtypes: frozenset[str]
    ranks: tuple[int, ...]


def _usual(meaning: str, names: str, dtypes: frozenset[str], *ranks: int) -> _Usual:
    return _Usual(meaning, re.compile(names), dtypes, ranks)


_USUAL = (
    _usual("tokens", r"(decoder_)?(input_?ids?|tokens?|token_ids?|input_tokens?|ids)", INTEGERS, 2),
    _usual("mask", r"(decoder_)?(attention_mask|attn_mask|input_mask|mask|padding_mask)", _MASKS, 2),
    _usual("source_mask", r"(encoder|cross|source|src|memory)(_attention|_attn|_padding)?_mask", _MASKS, 2),
    _usual("positions", r"(decoder_)?(position_ids?|positions?|pos_ids?|input_pos(itions?)?)", INTEGERS, 2),
    _usual("types", r"(token_type_ids?|segment_ids?|type_ids?)", INTEGERS, 2),
    _usual("embeds", r"(decoder_)?(inputs?_embeds?|inputs?_embeddings?|embeddings?|token_embeds?)", FLOATS, 3),
    _usual("source", r"(encoder_(hidden_states?|outputs?|states?|out)|memory|source_states?)", FLOATS, 3),
    _usual("last_index", r"seqlens_k", INTEGERS, 1),
    _usual("longest", r"total_sequence_length", INTEGERS, 0),
    _usual("total_length", r"(nonpad_kv_seqlen|total_lengths?|kv_lengths?)", INTEGERS, 1),
    _usual("past_length", r"past_(sequence_)?lengths?", INTEGERS, 1, 0),
    _usual("write_indices", r"write_ind(ices|ex)", INTEGERS, 1),
    _usual("cache_position", r"cache_positions?", INTEGERS, 2),
    _usual("later", r"use_cache(_branch)?", frozenset({"bool"}), 1, 0),
    _usual("lengths", r"(sequence_lengths?|seq_lens?|lengths?|input_lengths?)", INTEGERS, 1),
)  # fmt: skip
_LOGITS = re.compile(r"(lm_)?logits?|scores|prediction_scores")
_ALWAYS = "what does it take?"


def input_meanings(facts: GraphFacts, states: Iterable[State]) -> dict[str, Finding]:
    """The meaning of every input that is no state, in the order of the graph."""
    taken = {name for state in states for name in state.ports}
    ports = {name: port for name, port in facts.inputs.items() if name not in taken}
    found: dict[str, Finding] = {}
    for name, port in ports.items():
        finding = _by_reader(facts, name) or _by_name(port)
        if finding is not None:
            found[name] = finding
    _report_rivals(found)
    _by_elimination(ports, found)
    unread = certain("unread", "no node reads it")
    return {name: found.get(name) or (unread if name in facts.unread else _open(ports[name])) for name in ports}


def logits_of(facts: GraphFacts, states: Iterable[State], vocabulary: int | None) -> Finding | None:
    """The output that tokens are chosen from; None when no output can be that one. ``vocabulary``: tokens there are."""
    taken = {name for state in states for name in state.ports}
    outputs = [p for name, p in facts.outputs.items() if name not in taken and p.dtype in FLOATS and _rank(p) in (2, 3)]
    named = [port for port in outputs if _LOGITS.fullmatch(port.name.lower())]
    if len(named) == 1:
        return certain(named[0].name, "a usual name")
    wide = [port for port in outputs if _rank(port) == 3 and vocabulary and _covers(port, vocabulary)]
    if len(wide) == 1:
        return certain(wide[0].name, "the only output as wide as the vocabulary")
    if not wide:
        return None
    names = tuple(port.name for port in wide)
    return unclear(f"which output of {facts.file} are the logits?", *names)


def _covers(port: Port, vocabulary: int) -> bool:
    """Whether the last axis has room for every token, and not much more."""
    size = (port.shape or ("",))[-1]
    return isinstance(size, int) and vocabulary <= size <= vocabulary + max(1024, vocabulary // 8)


def _by_reader(facts: GraphFacts, name: str) -> Finding | None:
    meanings = {_BY_READER[reader] for reader in facts.readers.get(name, ()) if reader in _BY_READER}
    if len(meanings) != 1:
        return None
    (meaning,) = meanings
    return certain(meaning, "the node that reads it takes nothing else")


def _by_name(port: Port) -> Finding | None:
    plain = re.sub(r"[^a-z0-9]+", "_", port.name.lower()).strip("_")
    for usual in _USUAL:
        if usual.names.fullmatch(plain) and port.dtype in usual.dtypes and _rank(port) in usual.ranks:
            return certain(usual.meaning, "a usual name, dtype and rank")
    return None


def _report_rivals(found: dict[str, Finding]) -> None:
    """Two ports of one meaning leave it open which is which."""
    by_meaning: dict[str, list[str]] = {}
    for name, finding in found.items():
        by_meaning.setdefault(finding.value, []).append(name)
    for names in by_meaning.values():
        if len(names) > 1:
            others = tuple(dict.fromkeys(found[name].value for name in names))
            for name in names:
                found[name] = unclear(
                    f"'{name}': {' and '.join(names)} look alike; {_ALWAYS}", *others, "another value"
                )


def _by_elimination(ports: Mapping[str, Port], found: dict[str, Finding]) -> None:
    """What is left where there is one choice: one matrix of integers where tokens are missing, one matrix of rows."""
    meanings = {finding.value for finding in found.values()}
    left = [port for name, port in ports.items() if name not in found]
    matrices = [port for port in left if port.dtype in INTEGERS and _rank(port) == 2]
    rows = [port for port in left if port.dtype in FLOATS and _rank(port) == 3]
    if len(matrices) == 1 and not meanings & {"tokens", "embeds"} and not rows:
        found[matrices[0].name] = certain("tokens", "the only matrix of integers")
        return
    sequence = _sequence(ports, found)
    if len(matrices) == 1 and sequence and "mask" not in meanings:
        (port,) = matrices
        length = (port.shape or ("", ""))[1]
        if isinstance(length, str) and length not in ("", sequence):
            found[port.name] = certain("mask", "the only matrix of integers, and longer than the tokens")


def _sequence(ports: Mapping[str, Port], found: Mapping[str, Finding]) -> Dim:
    """The symbol of the new tokens, where the port that takes them has one."""
    shapes: Iterator[tuple[Dim, ...]] = (
        ports[name].shape or () for name, finding in found.items() if finding.value in ("tokens", "embeds")
    )
    return next((shape[1] for shape in shapes if len(shape) > 1), "")


def _open(port: Port) -> Finding:
    """A port that nothing says the meaning of, with what its dtype and rank allow."""
    rank = _rank(port)
    if port.dtype in FLOATS:
        return Finding("rows" if rank == 3 else "features", "open", f"'{port.name}': {_ALWAYS}", ())
    allowed = tuple(dict.fromkeys(u.meaning for u in _USUAL if port.dtype in u.dtypes and rank in u.ranks))
    return unclear(f"'{port.name}' ({port.dtype}, {shown_shape(port)}): {_ALWAYS}", *allowed)


def shown_shape(port: Port) -> str:
    """The shape of a port as messages show it."""
    return "rank unknown" if port.shape is None else f"[{', '.join(str(dim) or '?' for dim in port.shape)}]"


def _rank(port: Port) -> int:
    return -1 if port.shape is None else len(port.shape)

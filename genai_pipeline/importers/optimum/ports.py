"""Ports of a graph by structure: which inputs are state, how it is kept, and what the other inputs are bound to."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from genai_pipeline.graph.signature import GraphSignature, Port
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.structure.graph_facts import GraphFacts
from genai_pipeline.importers.structure.token_runs import merged_span

_PART = re.compile(r"(?<=[._])(key|value)s?$")
_CACHE_RANK = 4  # [batch, heads, length, head size]
_OPEN_AXES = {1: "heads", 3: "head_dim"}

# The first run of a sequence -> what becomes of a prompt.
_SPANS: Mapping[Any, str] = {
    1: "span: a prompt goes in token by token, as nothing says that several are taken",
    "whole": "span: a prompt goes in whole, later tokens one by one, as the decoder with a past was traced",
    None: "runs take any number of tokens: attention on the past is causal by definition",
}
LOOP: Mapping[str, tuple[str, int]] = {  # input of a decoder -> its binding, and the rank it must have
    "input_ids": ("loop.tokens", 2),
    "decoder_input_ids": ("loop.tokens", 2),
    "attention_mask": ("loop.attention_mask", 2),
    "decoder_attention_mask": ("loop.attention_mask", 2),
    "position_ids": ("loop.position_ids", 2),
}
SWITCH = "use_cache_branch"
Traced = Callable[[GraphFacts, Port, Collection[str]], dict[str, Any]]  # how many tokens runs of a graph take
KEEP_ALL = ("num_logits_to_keep", "logits_to_keep")  # 0: logits of every token, from which the engine takes its rows


@dataclass(frozen=True, slots=True)
class State:
    """State entries for a component's ``kv``, the inputs they take up, and the outputs of what grows with tokens."""

    entries: tuple[dict[str, Any], ...]
    ports: frozenset[str]
    grown: frozenset[str] = frozenset()


def find_state(file: str, graph: GraphSignature, config: ConfigNode, report: ImportReport) -> State:
    """The state of a graph; an input that looks like state and is none of the known kinds is refused by name."""
    grouped: dict[tuple[str, str, str], list[int]] = {}
    ports: set[str] = set()
    opened: set[int] = set()
    grown: set[str] = set()
    for name, port in graph.inputs.items():
        if not name.startswith("past"):
            continue
        ports.add(name)
        present = _present(name, graph)
        update = _update(name, port, graph)
        if update is None or (present is None and update != "fixed"):
            shown = f"{port.dtype} {list(port.shape or ())}"
            report.refused(file, name, f"state of a kind that is not known: {shown}, its present: {present or 'none'}")
            continue
        past_pattern, layer = _pattern(name)
        grouped.setdefault((past_pattern, _pattern(present)[0] if present else "", update), []).append(layer)
        if present and update in ("append", "in_place"):
            grown.add(present)
        if update != "replace" and port.shape:
            opened |= {axis for axis in _OPEN_AXES if isinstance(port.shape[axis], str)}
    patterns = [past for past, _, _ in grouped]
    entries = []
    for (past, present, update), layers in grouped.items():
        entry: dict[str, Any] = {"update": update, "past": past, **({"present": present} if present else {})}
        if patterns.count(past) > 1:
            entry["layers"] = sorted(set(layers))
        if update != "replace":
            entry |= {_OPEN_AXES[axis]: size for axis in sorted(opened) if (size := _size(axis, config))}
        entries.append(entry)
        report.mapped(file, past, f"kv, update {update}")
    return State(tuple(entries), frozenset(ports), frozenset(grown))


def bind(
    file: str, graph: GraphSignature, state: State, given: Mapping[str, str], report: ImportReport
) -> dict[str, Any]:
    """Bindings of the inputs that are no state, ``given`` first; inputs that nothing gives are refused by name."""
    bound: dict[str, Any] = {}
    for name, port in graph.inputs.items():
        if name in state.ports:
            continue
        binding, rank = (given[name], None) if name in given else LOOP.get(name, ("", None))
        if name == SWITCH:
            binding, rank = "not loop.first", None
        elif name in KEEP_ALL:
            bound[name] = 0 if port.shape is None or len(port.shape) == 0 else [0]
            continue
        if not binding:
            report.refused(file, name, f"an input that nothing here gives: {port.dtype} {list(port.shape or ())}")
        elif rank is not None and port.shape is not None and len(port.shape) != rank:
            report.refused(file, name, f"has the shape {list(port.shape)}; {binding} has {rank} axes")
        else:
            bound[name] = binding
    return bound


def span_of(facts: GraphFacts, state: State, traced: Traced, report: ImportReport) -> dict[str, Any]:
    """The component's ``span`` where its runs may not take any number of tokens.

    ``traced`` gives it by how the graph came about; a switch between two decoders says more.
    """
    inputs = facts.inputs
    token = next((inputs[name] for name in (*LOOP, "inputs_embeds") if name in inputs), None)
    if SWITCH in inputs:
        span, about = merged_span(facts, SWITCH, state.ports, state.grown), SWITCH
    elif token is not None:
        span, about = traced(facts, token, state.grown), token.name
    else:
        return {}
    if span or SWITCH in inputs:
        report.mapped(facts.file, about, _SPANS[span.get("first")])
    return {"span": span} if span else {}


def _update(name: str, port: Port, graph: GraphSignature) -> str | None:
    if port.shape is None:
        return None
    if len(port.shape) == _CACHE_RANK and _PART.search(name):
        if ".encoder." in name:
            return "fixed"
        return "in_place" if name in graph.windows else "append"
    fixed = all(isinstance(dim, int) for dim in port.shape[1:])
    return "replace" if len(port.shape) > 1 and fixed else None


def _present(name: str, graph: GraphSignature) -> str | None:
    """The output that goes back into a past input."""
    candidates = [name.replace("past_key_values", "present"), name.replace("past", "present")]
    return next((other for other in candidates if other != name and other in graph.outputs), None)


def _pattern(name: str) -> tuple[str, int]:
    """A name with its first number and its last part as slots, and the number."""
    number = re.search(r"\d+", name)
    pattern = re.sub(r"\d+", "{layer}", name, count=1)
    part = _PART.search(pattern)
    if part:
        pattern = f"{pattern[: part.start(1)]}{{part}}{pattern[part.end(1) :]}"
    return pattern, int(number.group()) if number else 0


def _size(axis: int, config: ConfigNode) -> int | None:
    """Heads, or the size of one, as the config has them; None where it does not say."""
    heads = next((config.integer(key) for key in ("num_attention_heads", "n_head") if key in config), None)
    if axis == 1:
        return config.integer("num_key_value_heads") if "num_key_value_heads" in config else heads
    if "head_dim" in config:
        return config.integer("head_dim")
    width = next((config.integer(key) for key in ("hidden_size", "n_embd", "d_model") if key in config), None)
    return width // heads if width and heads else None

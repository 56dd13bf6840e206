"""Decoders: a graph, or two, that takes tokens, keeps its cache and gives logits, in one decode loop.

Of the pair decoder_model and decoder_with_past_model the first one runs a prompt, the other one later tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from genai_pipeline.graph.signature import GraphSignature, joined
from genai_pipeline.importers.optimum.layout import MERGED, MODEL, PLAIN, WITH_PAST, Layout
from genai_pipeline.importers.optimum.ports import State, bind, find_state, span_of
from genai_pipeline.importers.optimum.source import Source
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.decode_stage import decode_stage
from genai_pipeline.importers.shared.generation_config import generation_defaults, loop_fields
from genai_pipeline.importers.structure.graph_facts import GraphFacts, read_facts
from genai_pipeline.importers.structure.token_runs import lone_span, pair_span, single_span

COMMENT = "Imported from a text decoder that Optimum or transformers.js laid out: one decoder, one loop."


def is_decoder(layout: Layout, signatures: dict[str, GraphSignature]) -> bool:
    """Whether the graphs are one decoder: tokens and a past in, logits out, and nothing from an encoder."""
    role = main_role(layout)
    if role is None or not layout.graphs.keys() <= {MERGED, PLAIN, WITH_PAST, MODEL}:
        return False
    graph = signatures[role]
    takes = "input_ids" in graph.inputs and "encoder_hidden_states" not in graph.inputs
    return takes and any(name.startswith("past") for name in graph.inputs) and "logits" in graph.outputs


def main_role(layout: Layout) -> str | None:
    """The role of the graph that decodes, the one with a past where there are two."""
    return next((role for role in (MERGED, WITH_PAST, MODEL, PLAIN) if role in layout.graphs), None)


def decoder_fields(source: Source) -> dict[str, Any]:
    """The fields of the metadata of a text decoder."""
    component, run = decoder_parts(source, {})
    return {
        "inputs": {"prompt": {"modality": "text"}},
        "outputs": {"text": {"modality": "text", "value": "generate.text"}},
        "tokenizer": source.tokens(),
        "components": {"decoder": component},
        "stages": [answer_stage(source, [run])],
        **closing_fields(source),
    }


def decoder_parts(source: Source, given: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The component of the decoder and the stage that runs it; ``given`` binds ports beyond the loop's own."""
    graphs, report = source.layout.graphs, source.report
    role = main_role(source.layout)
    assert role is not None, "a layout with a decoder was recognised"
    facts = read_facts(source.folder.path, graphs[role])
    first = read_facts(source.folder.path, graphs[PLAIN]) if role == WITH_PAST and PLAIN in graphs else None
    graph = facts.signature if first is None else joined(first.signature, facts.signature)
    state = find_state(facts.file, graph, source.text, report)
    inputs = bind(facts.file, graph, state, given, report)
    if "logits" not in graph.outputs:
        report.refused(facts.file, "logits", f"the graph has no such output; it has {', '.join(graph.outputs)}")
    component: dict[str, Any] = {"model": facts.file}
    if first is not None:
        component = {"model": {"first": first.file, "later": facts.file}}
        _check_first(first, state, report)
        report.mapped(first.file, "", "components.decoder: first runs")
    traced = pair_span if first is not None else lone_span if role == WITH_PAST else single_span
    component |= span_of(facts, state, traced, report)
    if state.entries:
        component["kv"] = state.entries[0] if len(state.entries) == 1 else list(state.entries)
    report.mapped(facts.file, "", "components.decoder" if first is None else "components.decoder: later runs")
    return component, {"run": "decoder", "inputs": inputs, "outputs": {"logits": "logits"}}


def _check_first(first: GraphFacts, state: State, report: ImportReport) -> None:
    """The graph without a past gives the cache that the other one goes on with."""
    for name in sorted(state.grown - first.outputs.keys()):
        why = "the graph for first runs does not give it: it was exported without its cache"
        report.refused(first.file, name, why, "export the decoder with its cache (use_cache)")


def answer_stage(
    source: Source, body: list[dict[str, Any]], prompt: Any = "prompt.tokens", **more: Any
) -> dict[str, Any]:
    """The decode loop that writes the answer, with the tokens that it never chooses."""
    return decode_stage(body, prompt, **more, **loop_fields(source.generation, source.report))


def closing_fields(
    source: Source,
    taken: frozenset[str] = frozenset({"decoder_start_token_id"}),
    more: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """``generation`` and ``limits``; ``taken`` keys of generation_config.json are the caller's, who gives ``more``."""
    fields: dict[str, Any] = {}
    if defaults := {**generation_defaults(source.generation, source.report, taken), **more}:
        fields["generation"] = {"defaults": defaults}
    return {**fields, "limits": {"context_length": source.context()}}

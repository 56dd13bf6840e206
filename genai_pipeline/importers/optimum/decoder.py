"""Text decoders: one graph that takes tokens, keeps its cache and gives logits, in one decode loop."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.importers.optimum.generation import generation_defaults, loop_fields
from genai_pipeline.importers.optimum.layout import MERGED, MODEL, PLAIN, WITH_PAST, Layout
from genai_pipeline.importers.optimum.ports import bind, find_state, span_of
from genai_pipeline.importers.optimum.source import Source
from genai_pipeline.importers.structure.graph_facts import read_facts

COMMENT = "Imported from a text decoder that Optimum or transformers.js laid out: one graph, one loop."


def is_decoder(layout: Layout, signatures: dict[str, GraphSignature]) -> bool:
    """Whether the graphs are one decoder: tokens and a past in, logits out, and nothing from an encoder."""
    if not layout.graphs or not layout.graphs.keys() <= {MERGED, PLAIN, WITH_PAST, MODEL}:
        return False
    graph = signatures[_main_role(layout)]
    takes = "input_ids" in graph.inputs and "encoder_hidden_states" not in graph.inputs
    return takes and any(name.startswith("past") for name in graph.inputs) and "logits" in graph.outputs


def _main_role(layout: Layout) -> str:
    return next(role for role in (MERGED, WITH_PAST, MODEL, PLAIN) if role in layout.graphs)


def decoder_fields(source: Source) -> dict[str, Any]:
    """The fields of the metadata of a text decoder."""
    graphs = source.layout.graphs
    role = _main_role(source.layout)
    if role == WITH_PAST and PLAIN in graphs:
        source.report.dropped(graphs[PLAIN], "", "the graph with a past begins with an empty one just as well")
    component, run = decoder_parts(source, graphs[role], {})
    return {
        "inputs": {"prompt": {"modality": "text"}},
        "outputs": {"text": {"modality": "text", "value": "generate.text"}},
        "tokenizer": source.tokens(),
        "components": {"decoder": component},
        "stages": [decode_stage(source, [run])],
        **closing_fields(source),
    }


def decoder_parts(source: Source, file: str, given: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The component of a decoder graph and the stage that runs it; ``given`` binds ports beyond the loop's own."""
    facts = read_facts(source.folder.path, file)
    graph = facts.signature
    state = find_state(file, graph, source.text, source.report)
    inputs = bind(file, graph, state, given, source.report)
    if "logits" not in graph.outputs:
        source.report.refused(file, "logits", f"the graph has no such output; it has {', '.join(graph.outputs)}")
    component: dict[str, Any] = {"model": file, **span_of(facts, state, source.report)}
    if state.entries:
        component["kv"] = state.entries[0] if len(state.entries) == 1 else list(state.entries)
    source.report.mapped(file, "", "components.decoder")
    return component, {"run": "decoder", "inputs": inputs, "outputs": {"logits": "logits"}}


def decode_stage(
    source: Source, body: list[dict[str, Any]], prompt: Any = "prompt.tokens", **more: Any
) -> dict[str, Any]:
    """The decode loop that writes the answer, with the tokens that it never chooses."""
    loop = {"id": "generate", "loop": "decode", "prompt": prompt, "body": body, "logits": "logits"}
    return {**loop, **more, **loop_fields(source.generation, source.report)}


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

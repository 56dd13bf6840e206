"""Encoder and decoder: the source is encoded once, the decoder keeps its own cache and that of cross attention.

A decoder computes the cross cache in its first run, which is captured.
"""

from __future__ import annotations

from typing import Any

from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.importers.optimum.decoder import answer_stage, closing_fields, decoder_parts
from genai_pipeline.importers.optimum.layout import ENCODER, MERGED, WITH_PAST, Layout
from genai_pipeline.importers.optimum.source import Source
from genai_pipeline.importers.shared.generation_config import ANSWER_KEYS, START, answer_defaults

COMMENT = "Imported from an encoder and a decoder that Optimum laid out: read the source once, then write the answer."
_SOURCE_PORTS = {"input_ids": "prompt.tokens", "attention_mask": "prompt.mask"}
STATES_IN = "encoder_hidden_states"
_STATES, _MASK_IN = "last_hidden_state", "encoder_attention_mask"


def is_encoder_decoder(layout: Layout, signatures: dict[str, GraphSignature], source_port: str = "input_ids") -> bool:
    """Whether an encoder that takes ``source_port`` gives states that a decoder reads."""
    if ENCODER not in layout.graphs or not any(role in layout.graphs for role in (MERGED, WITH_PAST)):
        return False
    return source_port in signatures[ENCODER].inputs and _STATES in signatures[ENCODER].outputs


def seq2seq_fields(source: Source) -> dict[str, Any]:
    """The fields of the metadata of a text-to-text model."""
    start = start_token(source)
    encode, components = encoder_parts(source, _SOURCE_PORTS)
    given = {STATES_IN: "source", _MASK_IN: "prompt.mask"}
    decoder, run = decoder_parts(source, given)
    return {
        "inputs": {"prompt": {"modality": "text"}},
        "outputs": {"text": {"modality": "text", "value": "generate.text"}},
        "tokenizer": source.tokens(),
        "components": {**components, "decoder": decoder},
        "stages": [encode, answer_stage(source, [run], prompt={"tokens": [start]})],
        **closing_fields(source, ANSWER_KEYS, answer_defaults(source.generation, source.report)),
    }


def start_token(source: Source) -> int:
    """The id that every answer begins with; refused when no file says it."""
    for config in (source.generation, source.text, source.config):
        if START in config:
            source.report.mapped(config.file, config.at(START), "the loop's prompt")
            return config.integer(START)
    source.report.refused("config.json", START, "missing: what an answer begins with is not said")
    return 0


def encoder_parts(source: Source, ports: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The stage that encodes the source, and its component."""
    file = source.layout.graphs[ENCODER]
    graph = source.folder.signature(file)
    for name in (name for name in graph.inputs if name not in ports):
        source.report.refused(file, name, "an input that nothing here gives")
    source.report.mapped(file, "", "components.encoder")
    inputs = {name: ports[name] for name in graph.inputs if name in ports}
    stage = {"run": "encoder", "inputs": inputs, "outputs": {_STATES: "source"}}
    return stage, {"encoder": {"model": file}}

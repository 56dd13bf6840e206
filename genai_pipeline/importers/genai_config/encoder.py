"""``model.encoder`` of genai_config.json, and the cross attention of the decoder that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.metadata_text import ComponentText
from genai_pipeline.importers.genai_config.ports import PartPorts
from genai_pipeline.importers.genai_config.session_options import read_session
from genai_pipeline.importers.genai_config.states import PortPattern, StateEntry, layers_of, state_entries
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder

NAME: Final = "encoder"
STATES: Final = "states"  # the value that the encoder's hidden states become
_PARTS = ("key", "value")
_STATES_NAME = "encoder_hidden_states"
_FROM_GRAPH = ("hidden_size", "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "head_size")


@dataclass(frozen=True, slots=True)
class EncoderPart:
    """The component and its ports: of sound features, or of tokens and their mask; ``states`` is an output."""

    component: ComponentText
    audio: Port | None
    tokens: Port | None
    mask: Port | None
    states: Port | None


def read_encoder(source: SourceFolder, encoder: ConfigNode, report: ImportReport) -> EncoderPart:
    """Reads, maps and reports the whole part but for the names of cross attention."""
    file = encoder.text("filename")
    signature = source.signature(file)
    report.mapped(encoder.file, encoder.at("filename"), "components.encoder.model")
    ports = PartPorts(encoder, signature, report)
    part = EncoderPart(
        ComponentText(NAME, file, (), read_session(encoder, report)),
        ports.input("audio_features", "audio_features", "audio.windows.features"),
        ports.input("input_ids", "input_ids", "prompt.tokens"),
        ports.input("attention_mask", "attention_mask", "prompt.mask"),
        ports.output(_STATES_NAME, _STATES_NAME, f"encoder.{STATES}"),
    )
    if part.audio is None and part.tokens is None:
        hint = "name its port in model.encoder.inputs"
        report.refused(encoder.file, encoder.at("inputs"), "the encoder takes neither tokens nor sound features", hint)
    ports.refuse_rest()
    for leaf in report.uncovered(encoder):
        if leaf.path.rpartition(".")[2] in _FROM_GRAPH:
            report.dropped(leaf.file, leaf.path, "the graph has what it needs of it")
    return part


def read_cross(source: SourceFolder, model: ConfigNode, report: ImportReport) -> list[StateEntry]:
    """Keys and values of cross attention, which the encoder gives once: none where the decoder reads its states."""
    decoder, encoder = model.need("decoder"), model.need(NAME)
    inputs, outputs = decoder.mapping("inputs"), encoder.mapping("outputs")
    signature = source.signature(decoder.text("filename"))
    patterns = []
    for part in _PARTS:
        past, present = f"cross_past_{part}_names", f"cross_present_{part}_names"
        ours = inputs.text(past) if past in inputs else ""
        theirs = outputs.text(present, f"present_{part}_cross_%d")
        layers = layers_of(ours, signature)
        if not layers:
            continue
        patterns.append(PortPattern(ours, theirs, part, layers))
        report.mapped(inputs.file, inputs.at(past), "components.decoder.kv.past, written once (fixed)")
        if present in outputs:
            report.mapped(outputs.file, outputs.at(present), "components.decoder.kv.present, from the encoder")
    return state_entries(patterns, {"update": "fixed"}, {"from": NAME}) if patterns else []

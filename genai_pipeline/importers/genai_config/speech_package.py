"""Encoder-decoders: sounds written down window by window (Whisper), and texts that become other texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.audio_program import FILE, read_audio_program
from genai_pipeline.importers.genai_config.decoder import DecoderPart, read_decoder
from genai_pipeline.importers.genai_config.encoder import STATES, EncoderPart, read_cross, read_encoder
from genai_pipeline.importers.genai_config.metadata_text import head_lines, plain, tail_lines
from genai_pipeline.importers.genai_config.never_chosen import NeverChosen, read_never_chosen
from genai_pipeline.importers.genai_config.package_parts import (
    PackageParts,
    family,
    read_settings,
    report_sharing,
    token_fields,
)
from genai_pipeline.importers.genai_config.prompt_tokens import read_prompt_tokens
from genai_pipeline.importers.package_writer import flow
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.log_mel import AudioProgram
from genai_pipeline.importers.shared.prompt_tokens import PromptTokens
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.tokenizer_files import read_tokenizer_files

_OUTER: Final = {"encoder_hidden_states": STATES, "encoder_attention_mask": "prompt.mask"}


@dataclass(frozen=True, slots=True)
class _Parts:
    """What both shapes are made of: the two graphs, what an answer starts with and may not be, the tokenizer entry."""

    encoder: EncoderPart
    decoder: DecoderPart
    tokens: PromptTokens
    never: NeverChosen
    tokenizer: dict[str, Any]


def encoder_decoder_package(source: SourceFolder, config: ConfigNode, name: str, report: ImportReport) -> PackageParts:
    """The package of an encoder and a decoder; what cannot be mapped is refused in the report."""
    model = config.need("model")
    tokenizer = read_tokenizer_files(source, report)
    encoder = read_encoder(source, model.need("encoder"), report)
    decoder = read_decoder(source, model.need("decoder"), report, read_cross(source, model, report), _OUTER)
    settings = read_settings(config, model, report)
    report_sharing(config, decoder, report)
    fields = token_fields(model, tokenizer, report)
    fields.pop("chat_template", None)
    tokens = read_prompt_tokens(source, model, encoder.audio is not None, report)
    parts = _Parts(encoder, decoder, tokens, read_never_chosen(source, config, report), fields)
    program = None if encoder.audio is None else _program(source, model, encoder.audio, report)
    lines = [
        *head_lines(name, f"{family(model, report)}, from genai_config.json"),
        *(_text(parts) if program is None else _speech(parts, program)),
        *tail_lines(settings.defaults, settings.most_tokens),
    ]
    return PackageParts("\n".join(lines), tokenizer, (encoder.component.model, decoder.component.model))


def _program(source: SourceFolder, model: ConfigNode, port: Port, report: ImportReport) -> AudioProgram:
    """How a sound becomes what the encoder's port takes."""
    speech = model.mapping("speech")
    if "config_filename" in speech:
        report.mapped(speech.file, speech.at("config_filename"), "preprocess.log_mel")
    program = read_audio_program(source, speech.text("config_filename", FILE), report)
    _check_features(port, program, model, report)
    return program


def _speech(parts: _Parts, program: AudioProgram) -> Iterator[str]:
    """A sound is cut into windows, and each is heard and written down."""
    assert parts.encoder.audio is not None
    yield from ("inputs:", "  audio: {modality: audio, program: log_mel}")
    if parameters := list(parts.tokens.parameters()):
        yield from ("  parameters:", *parameters)
    yield from ("outputs:", "  text: {modality: text, value: text, segments: segments}")
    yield f"tokenizer: {flow(parts.tokenizer)}"
    yield from program.lines()
    yield from _components(parts)
    yield from ("stages:", "  - id: each", "    for_each: audio.windows", "    body:")
    yield from _encode(parts, {parts.encoder.audio.name: "audio.windows.features"}, "      ")
    yield from _loop(parts, "      ")
    if times := parts.tokens.times():
        yield f"        times: {flow(times)}"
    yield "  - op: transcript_times"
    yield "    inputs: {tokens: each.generate.tokens, windows: audio.windows}"
    yield "    outputs: {segments: segments, text: text}"


def _text(parts: _Parts) -> Iterator[str]:
    """A text goes through the encoder once; its answer is generated from the start token on."""
    bound = {parts.encoder.tokens: "prompt.tokens", parts.encoder.mask: "prompt.mask"}
    yield from ("inputs:", "  prompt: {modality: text}")
    yield from ("outputs:", "  text: {modality: text, value: generate.text}")
    yield f"tokenizer: {flow(parts.tokenizer)}"
    yield from _components(parts)
    yield "stages:"
    yield from _encode(parts, {port.name: value for port, value in bound.items() if port is not None}, "  ")
    yield from _loop(parts, "  ")


def _components(parts: _Parts) -> Iterator[str]:
    yield "components:"
    yield from parts.encoder.component.lines()
    yield from parts.decoder.component.lines()


def _encode(parts: _Parts, inputs: dict[str, str], indent: str) -> Iterator[str]:
    """The states have a name only where the decoder reads them, not the keys and values made of them."""
    yield f"{indent}- run: encoder"
    yield f"{indent}  inputs: {plain(inputs)}"
    states = parts.encoder.states
    if states is not None and STATES in parts.decoder.inputs.values():
        yield f"{indent}  outputs: {plain({states.name: STATES})}"


def _loop(parts: _Parts, indent: str) -> Iterator[str]:
    yield f"{indent}- id: generate"
    yield f"{indent}  loop: decode"
    yield f"{indent}  prompt: {{template: {flow(parts.tokens.template())}}}"
    yield from (f"{indent}  {line}" for line in parts.never.lines())
    yield f"{indent}  body:"
    yield f"{indent}    - run: decoder"
    yield f"{indent}      inputs: {plain(parts.decoder.inputs)}"
    yield f"{indent}      outputs: {plain({parts.decoder.logits: 'logits'})}"
    yield f"{indent}  logits: logits"


def _check_features(port: Port, program: AudioProgram, model: ConfigNode, report: ImportReport) -> None:
    """The encoder takes what the program makes: float32 [batch, bands, frames]."""
    where = model.mapping("encoder").mapping("inputs").at("audio_features")
    wanted: Sequence[int] = (program.mels, program.frames)
    if port.shape is not None and any(
        isinstance(size, int) and size != made for size, made in zip(port.shape[1:], wanted, strict=False)
    ):
        shown = ", ".join(map(str, port.shape))
        report.refused(
            model.file, where, f"the port is [{shown}]; {FILE} makes {wanted[0]} bands of {wanted[1]} frames"
        )
    if port.dtype != "float32":
        hint = "export the encoder with float32 inputs"
        report.refused(model.file, where, f"the port is {port.dtype}; features are float32", hint)

"""Encoder-decoders: sounds written down window by window (Whisper), and texts that become other texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.audio_program import FILE, AudioProgram, read_audio_program
from genai_pipeline.importers.genai_config.decoder import DecoderPart, read_decoder
from genai_pipeline.importers.genai_config.encoder import STATES, EncoderPart, read_cross, read_encoder
from genai_pipeline.importers.genai_config.metadata_text import head_lines, plain, tail_lines
from genai_pipeline.importers.genai_config.package_parts import (
    PackageParts,
    family,
    read_settings,
    report_sharing,
    token_fields,
)
from genai_pipeline.importers.genai_config.prompt_tokens import PromptTokens, read_prompt_tokens
from genai_pipeline.importers.package_writer import flow
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.tokenizer_files import read_tokenizer_files

_OUTER: Final = {"encoder_hidden_states": STATES, "encoder_attention_mask": "prompt.mask"}


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
    shape = _speech if encoder.audio is not None else _text
    lines = [
        *head_lines(name, f"{family(model, report)}, from genai_config.json"),
        *shape(source, model, encoder, decoder, tokens, fields, report),
        *tail_lines(settings.defaults, settings.most_tokens),
    ]
    return PackageParts("\n".join(lines), tokenizer, (encoder.component.model, decoder.component.model))


def _speech(
    source: SourceFolder,
    model: ConfigNode,
    encoder: EncoderPart,
    decoder: DecoderPart,
    tokens: PromptTokens,
    tokenizer: dict[str, Any],
    report: ImportReport,
) -> Iterator[str]:
    """A sound is cut into windows, and each is heard and written down."""
    assert encoder.audio is not None
    speech = model.mapping("speech")
    if "config_filename" in speech:
        report.mapped(speech.file, speech.at("config_filename"), "preprocess.log_mel")
    program = read_audio_program(source, speech.text("config_filename", FILE), report)
    _check_features(encoder.audio, program, model, report)
    yield from ("inputs:", "  audio: {modality: audio, program: log_mel}")
    if parameters := list(tokens.parameters()):
        yield from ("  parameters:", *parameters)
    yield from ("outputs:", "  text: {modality: text, value: text, segments: segments}")
    yield f"tokenizer: {flow(tokenizer)}"
    yield from program.lines()
    yield from _components(encoder, decoder)
    yield from ("stages:", "  - id: each", "    for_each: audio.windows", "    body:")
    yield from _encode(encoder, {encoder.audio.name: "audio.windows.features"}, decoder, "      ")
    yield from _loop(decoder, tokens, "      ")
    if times := tokens.times():
        yield f"        times: {flow(times)}"
    yield "  - op: transcript_times"
    yield "    inputs: {tokens: each.generate.tokens, windows: audio.windows}"
    yield "    outputs: {segments: segments, text: text}"


def _text(
    source: SourceFolder,
    model: ConfigNode,
    encoder: EncoderPart,
    decoder: DecoderPart,
    tokens: PromptTokens,
    tokenizer: dict[str, Any],
    report: ImportReport,
) -> Iterator[str]:
    """A text goes through the encoder once; its answer is generated from the start token on."""
    bound = {encoder.tokens: "prompt.tokens", encoder.mask: "prompt.mask"}
    yield from ("inputs:", "  prompt: {modality: text}")
    yield from ("outputs:", "  text: {modality: text, value: generate.text}")
    yield f"tokenizer: {flow(tokenizer)}"
    yield from _components(encoder, decoder)
    yield "stages:"
    found = {port.name: value for port, value in bound.items() if port is not None}
    yield from _encode(encoder, found, decoder, "  ")
    yield from _loop(decoder, tokens, "  ")


def _components(encoder: EncoderPart, decoder: DecoderPart) -> Iterator[str]:
    yield "components:"
    yield from encoder.component.lines()
    yield from decoder.component.lines()


def _encode(encoder: EncoderPart, inputs: dict[str, str], decoder: DecoderPart, indent: str) -> Iterator[str]:
    """The states have a name only where the decoder reads them, not the keys and values made of them."""
    yield f"{indent}- run: encoder"
    yield f"{indent}  inputs: {plain(inputs)}"
    if encoder.states is not None and STATES in decoder.inputs.values():
        yield f"{indent}  outputs: {plain({encoder.states.name: STATES})}"


def _loop(decoder: DecoderPart, tokens: PromptTokens, indent: str) -> Iterator[str]:
    yield f"{indent}- id: generate"
    yield f"{indent}  loop: decode"
    yield f"{indent}  prompt: {{template: {flow(tokens.template())}}}"
    yield f"{indent}  body:"
    yield f"{indent}    - run: decoder"
    yield f"{indent}      inputs: {plain(decoder.inputs)}"
    yield f"{indent}      outputs: {plain({decoder.logits: 'logits'})}"
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

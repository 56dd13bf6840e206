"""Whisper: a document has its two graphs, and its tokenizer the marks; the sound's program follows from both.

The document says nothing about features. Graphs of this family are told by the mark that their answers start with, and
all of them read log-mel features of the same frames; bands and length of a window are sizes of the encoder's ports.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from genai_pipeline.importers.package_writer import flow
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.log_mel import RATE, AudioProgram
from genai_pipeline.importers.shared.prompt_tokens import START, PromptTokens
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.draft_bindings import loop_bindings
from genai_pipeline.importers.structure.draft_parts import component_lines, todo
from genai_pipeline.importers.structure.joining import ModelParts
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.texts import TOKENIZER, Texts
from genai_pipeline.importers.workflow.document import DOCUMENT
from genai_pipeline.importers.workflow.translation import learnt_positions

_FFT, _HOP, _STRIDE = 400, 160, 2  # samples of a frame, samples between frames, frames that become one row
_SECONDS: Final = 30  # of a window, where the encoder leaves its length open
_RANK: Final = 3
_STATES: Final = "source"


def dictates(joined: ModelParts, texts: Texts) -> bool:
    """Whether an encoder reads features of sound for a decoder whose answers start with the mark of the family."""
    if joined.encoder is None or joined.decoder is None or START not in texts.added:
        return False
    inputs = list(joined.encoder.facts.inputs.values())
    return len(inputs) == 1 and len(inputs[0].shape or ()) == _RANK and inputs[0].dtype == "float32"


def dictation_text(
    title: str, folder: SourceFolder, joined: ModelParts, texts: Texts, origin: str, report: ImportReport
) -> str:
    """The metadata of a recogniser that cuts sounds into windows and writes each down."""
    encoder, decoder = joined.encoder, joined.decoder
    assert encoder is not None
    assert decoder is not None
    added = folder.json(TOKENIZER).get("added_tokens")
    tokens = {item.integer("id"): item.text("content") for item in (added.items() if added is not None else ())}
    marks = PromptTokens(tokens, None)
    lines = [f"# {origin}", 'schema_version: "1"', f"name: {flow(title)}", "inputs:"]
    lines += ["  audio: {modality: audio, program: log_mel}"]
    if parameters := list(marks.parameters()):
        lines += ["  parameters:", *parameters]
    lines += ["outputs:", "  text: {modality: text, value: text, segments: segments}"]
    ends = f", eos: {flow(list(texts.eos))}" if texts.eos else ""
    lines += [f"tokenizer: {{file: {flow(TOKENIZER)}{ends}}}", *_program(encoder, report).lines(), "components:"]
    lines += [
        *component_lines("encoder", encoder, joined, texts),
        *component_lines("decoder", decoder, joined, texts),
    ]
    lines += _stages(encoder, decoder, joined, marks)
    context = texts.context or learnt_positions(folder, decoder)
    lines += [f"limits: {{context_length: {context or todo('how many tokens does the model take?')}}}", ""]
    report.mapped(TOKENIZER, "added_tokens", f"stages.generate.prompt: the marks from {START} on")
    return "\n".join(lines)


def _program(encoder: Part, report: ImportReport) -> AudioProgram:
    """The features that the encoder's ports fit."""
    (port,) = encoder.facts.inputs.values()
    bands, rows = (port.shape or ("", "", ""))[1], (encoder.rows[0].shape or ("", ""))[1]
    if not isinstance(bands, int):
        report.refused(
            DOCUMENT, "components", f"'{port.name}' leaves the number of bands open", "export it as a number"
        )
    samples = rows * _STRIDE * _HOP if isinstance(rows, int) else _SECONDS * RATE
    if samples % RATE:
        why = f"'{encoder.rows[0].name}' has {rows} rows, which are no whole seconds of sound"
        report.refused(DOCUMENT, "components", why, "write the package by hand: docs/audio_programs.md")
    return AudioProgram(_FFT, _HOP, bands if isinstance(bands, int) else 1, max(1, samples // RATE))


def _stages(encoder: Part, decoder: Part, joined: ModelParts, marks: PromptTokens) -> Iterator[str]:
    (features,) = encoder.facts.inputs
    sources = dict.fromkeys(joined.sources, _STATES)
    given = next(iter(joined.sources.values()), encoder.rows[0].name)
    assert decoder.logits is not None
    yield from ("stages:", "  - id: each", "    for_each: audio.windows", "    body:")
    yield "      - run: encoder"
    yield f"        inputs: {flow({features: 'audio.windows.features'})}"
    yield f"        outputs: {flow({given: _STATES})}"
    yield from ("      - id: generate", "        loop: decode")
    yield f"        prompt: {{template: {flow(marks.template())}}}"
    yield from ("        body:", "          - run: decoder")
    yield f"            inputs: {flow(loop_bindings(decoder, sources, False))}"
    yield f"            outputs: {flow({decoder.logits.value: 'logits'})}"
    yield "        logits: logits"
    if times := marks.times():
        yield f"        times: {flow(times)}"
    yield "  - op: transcript_times"
    yield "    inputs: {tokens: each.generate.tokens, windows: audio.windows}"
    yield "    outputs: {segments: segments, text: text}"

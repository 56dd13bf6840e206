"""Speech recognisers that score every frame (CTC): a program for the sound, one run, the best path as text.

The document's profile says how frames are read, and its program how the sound is prepared; documents that say neither
lie beside the files of the model they were made from: preprocessor_config.json, vocab.json, tokenizer_config.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.workflow.document import DOCUMENT, Document
from genai_pipeline.importers.workflow.profiles import Reading, labels_of, reading
from genai_pipeline.importers.workflow.programs import Program, read_program

COMMENT: Final = "Imported from an inference-metadata document: score each frame of a sound, write the best path."
LABELS: Final = "labels.json"
EXTRACTOR, VOCABULARY, TOKENIZER = "preprocessor_config.json", "vocab.json", "tokenizer_config.json"
_EXTRACTORS: Final = ("Wav2Vec2FeatureExtractor",)
_EPSILON: Final = 1e-7  # that of the extractor
_LONGEST: Final = 1_000_000  # characters of a piece of text: no piece is cut
_HINT: Final = "write the package by hand: docs/audio_programs.md"


@dataclass(frozen=True, slots=True)
class Written:
    """Fields of the metadata, and JSON files that belong to them, by name."""

    fields: dict[str, Any]
    files: Mapping[str, Any] = field(default_factory=dict)


def hears(parts: Mapping[str, Part]) -> bool:
    """Whether the one network scores the frames of something that is no text."""
    if len(parts) != 1:
        return False
    (part,) = parts.values()
    port = _samples(part)
    return part.kind == "encoder" and part.logits is not None and port is not None


def hearing_fields(
    folder: SourceFolder, document: Document, parts: Mapping[str, Part], report: ImportReport
) -> Written:
    """The metadata of a recogniser. What the answer depends on and nothing says is refused."""
    ((name, part),) = parts.items()
    program = read_program(document.root, "audio", report) or _beside(folder, report)
    read = reading(document.root, report) or _symbols(folder, report)
    samples = _samples(part)
    assert samples is not None
    assert part.logits is not None
    logits = read.logits if read.logits in part.facts.outputs else part.logits.value
    inputs, extra = {samples: "sound.samples"}, []
    for port in part.facts.inputs:
        if part.inputs[port].value == "mask":
            inputs[port] = "heard"
            size = {"length": "sound.samples.length"}
            extra = [{"id": "all", "op": "mask", "inputs": size, "outputs": {"result": "heard"}}]
        elif port != samples:
            report.refused(part.facts.file, port, "an input that no sound gives", _HINT)
    outputs = {logits: "scores"}
    scored: dict[str, Any] = {"scores": "scores", "labels": "data.labels"}
    if read.lengths is not None and read.lengths in part.facts.outputs:
        outputs[read.lengths] = "frames"
        scored["length"] = "frames"
    report.mapped(DOCUMENT, f"components.{name}", f"components.{name}: {part.facts.file}")
    how = {"blank": read.blank, "kind": "logits"}
    stages = [
        *extra,
        {"id": "hear", "run": name, "inputs": inputs, "outputs": outputs},
        {"id": "read", "op": "ctc_decode", "with": how, "inputs": scored, "outputs": {"text": "path"}},
        {"id": "cut", "op": "split_text", "with": {"length": _LONGEST}, "inputs": {"text": "path"},
         "outputs": {"result": "pieces"}},
        {"id": "write", "op": "join", "inputs": {"values": ["pieces"]}, "outputs": {"result": "text"}},
    ]  # fmt: skip
    fields = {
        "inputs": {"sound": {"modality": "audio", "program": "listen"}},
        "outputs": {"text": {"modality": "text", "value": "text"}},
        "preprocess": {"listen": _mono(program)},
        "data": {"labels": {"file": LABELS}},
        "components": {name: {"model": part.facts.file}},
        "stages": stages,
    }
    return Written(fields, {LABELS: list(read.labels)})


def _samples(part: Part) -> str | None:
    """The input that takes samples [batch, time]: the only one of numbers."""
    floats = [port for port in part.facts.inputs.values() if port.dtype.startswith("float")]
    return floats[0].name if len(floats) == 1 and len(floats[0].shape or ()) == 2 else None


def _mono(program: Program) -> list[dict[str, Any]]:
    """The steps, with channels joined first: a graph that takes samples takes one channel."""
    steps = list(program.steps)
    if any("mono" in step for step in steps):
        return steps
    at = 1 if steps and "decode" in steps[0] else 0
    return [*steps[:at], {"mono": {}}, *steps[at:]]


def _beside(folder: SourceFolder, report: ImportReport) -> Program:
    """The program of the feature extractor whose config lies beside the document."""
    if not folder.has(EXTRACTOR):
        report.refused(DOCUMENT, "preprocessing.audio", f"missing, and there is no {EXTRACTOR}: how sounds become "
                       "samples is not said", f"put the model's {EXTRACTOR} into the folder")  # fmt: skip
        return Program()
    config = folder.json(EXTRACTOR)
    kind = config.text("feature_extractor_type", "none")
    if kind not in _EXTRACTORS:
        report.refused(EXTRACTOR, "feature_extractor_type", f"'{kind}' is not known; known is {_EXTRACTORS[0]}", _HINT)
    report.mapped(EXTRACTOR, "", "preprocess.listen")
    rate = {"resample": {"rate": config.integer("sampling_rate", 16000, least=1)}}
    unit = [{"normalize": {"to": "unit", "epsilon": _EPSILON}}] if config.boolean("do_normalize", True) else []
    return Program(({"decode": {}}, {"mono": {}}, rate, *unit))


def _symbols(folder: SourceFolder, report: ImportReport) -> Reading:
    """Symbols, the blank and the mark between words of the tokenizer that lies beside the document."""
    if not folder.has(VOCABULARY):
        report.refused(DOCUMENT, "profiles", f"missing, and there is no {VOCABULARY}: what the frames' symbols are "
                       "is not said", f"put the model's {VOCABULARY} and {TOKENIZER} into the folder")  # fmt: skip
        return Reading(0, ())
    config, ids = folder.optional_json(TOKENIZER), folder.json(VOCABULARY)
    tokens = {ids.integer(text): text for text in ids.keys}
    special = {key: _content(config, key, default) for key, default in _SPECIAL.items()}
    by_text = {text: index for index, text in tokens.items()}
    if special["pad_token"] not in by_text:
        report.refused(TOKENIZER, "pad_token", f"'{special['pad_token']}', which is the blank, is no symbol", _HINT)
    report.mapped(VOCABULARY, "", LABELS)
    report.mapped(TOKENIZER, "word_delimiter_token", f"{LABELS}: a space")
    ignored = tuple(special[key] for key in ("pad_token", "bos_token", "eos_token"))
    return Reading(by_text.get(special["pad_token"], 0), labels_of(tokens, special["word_delimiter_token"], ignored))


_SPECIAL: Final = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "word_delimiter_token": "|"}


def _content(config: ConfigNode, key: str, default: str) -> str:
    """The text of a token, which is written as text or as a mapping."""
    found = config.get(key)
    if found is not None and isinstance(found.value, dict):
        return found.text("content")
    return config.text(key, default)

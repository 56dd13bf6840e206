"""``model.speech`` with a graph of its own, beside a decoder of text: why no such part can be a package yet.

The format leaves three things to code of onnxruntime-genai, by ``model.type``: the marks of a sound in a prompt, how
many rows a sound of some length becomes, and what the steps of its own make of samples. Every step is named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder

NAME: Final = "speech"
FILE: Final = "audio_processor_config.json"
_ROWS: Final = "and says how many rows they become"
_STEPS: Final[Mapping[str, str]] = {
    "Phi4AudioEmbed": f"makes log-mel features of two sampling rates in a way of its own, {_ROWS}",
    "Gemma4LogMel": f"makes log-mel features in a way of its own, {_ROWS}",
    "Gemma4Audio": f"makes features in a way of its own, {_ROWS}",
    "Gemma4UnifiedAudioFrames": f"cuts samples into frames in a way of its own, {_ROWS}",
    "NemoLogMel": "makes log-mel features in a way of its own",
    "PerFeatureNormalize": "brings each band to mean 0 and deviation 1 over the frames that count",
    "AudioDecoderEx": "brings sounds to one of several sampling rates",
}
_HINT: Final = "write the package by hand: docs/audio_programs.md, docs/media_inputs.md"


def refuse_speech(source: SourceFolder, model: ConfigNode, report: ImportReport) -> None:
    """Refuses the part with all the reasons: prompt, rows, adapter, and each step that no program here has."""
    part = model.get(NAME)
    if part is None or ("filename" not in part and "pipeline" not in part):
        return
    why = "sounds beside text: neither their marks in prompts nor how many rows a sound becomes stand in any file"
    report.refused(part.file, part.path, why, _HINT)
    if "adapter_filename" in part:
        why = "weights that are laid over the decoder's while there are sounds"
        report.refused(part.file, part.at("adapter_filename"), why, "merge them into the decoder's graph")
    file = part.text("config_filename", FILE)
    sequence = source.optional_json(file).mapping("feature_extraction").get("sequence")
    for step in sequence.items() if sequence is not None else ():
        kind = step.need("operation").text("type")
        if kind in _STEPS:
            report.refused(file, step.path, f"the step {kind} {_STEPS[kind]}", _HINT)

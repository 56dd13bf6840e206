"""``audio_processor_config.json``: the steps from a sound to log-mel features, as a preprocess program."""

from __future__ import annotations

from typing import Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.log_mel import RATE, AudioProgram
from genai_pipeline.importers.source_folder import SourceFolder

FILE: Final = "audio_processor_config.json"
_STEPS = ("AudioDecoder", "STFTNorm", "LogMelSpectrum")


def read_audio_program(source: SourceFolder, file: str, report: ImportReport) -> AudioProgram:
    """Reads and reports the file; a step that is not known, or several in another order, is refused."""
    source.need(file, "it says how sounds become features")
    config = source.json(file)
    sequence = config.need("feature_extraction").need("sequence")
    steps = {operation.text("type"): operation for operation in (item.need("operation") for item in sequence.items())}
    if tuple(steps) != _STEPS:
        hint = f"known: {', '.join(_STEPS)}, in this order"
        report.refused(file, sequence.path, f"has the steps {', '.join(steps)}", hint)
        return AudioProgram(400, RATE // 100, 80, 30)
    stft, mel = (steps[name].mapping("attrs") for name in _STEPS[1:])
    program = AudioProgram(
        stft.integer("n_fft", least=1),
        mel.integer("hop_length", least=1),
        mel.integer("n_mel", least=1),
        mel.integer("chunk_size", least=1),
    )
    _check(file, stft, mel, program, report)
    report.mapped(file, "feature_extraction.sequence", "preprocess.log_mel; longer sounds are cut into windows")
    return program


def _check(file: str, stft: ConfigNode, mel: ConfigNode, program: AudioProgram, report: ImportReport) -> None:
    """The two steps agree, and frames are as long as their transform."""
    for node, key, value in (
        (stft, "frame_length", program.n_fft),
        (stft, "hop_length", program.hop),
        (mel, "n_fft", program.n_fft),
    ):
        found = node.integer(key, value)
        if found != value:
            report.refused(file, node.at(key), f"is {found}, not {value} as elsewhere in the file")

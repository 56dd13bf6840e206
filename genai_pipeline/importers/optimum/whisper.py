"""Whisper: sounds are cut into windows, each is encoded and written down in a decode loop of its own.

The feature extractor's numbers become the audio program; languages, tasks and time marks come from the tokenizer and
generation_config.json.
"""

from __future__ import annotations

from typing import Any

from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.optimum.decoder import answer_stage, closing_fields, decoder_parts
from genai_pipeline.importers.optimum.layout import ENCODER, Layout
from genai_pipeline.importers.optimum.seq2seq import STATES_IN, encoder_parts, is_encoder_decoder, start_token
from genai_pipeline.importers.optimum.source import Source
from genai_pipeline.importers.structure.texts import TOKENIZER

COMMENT = (
    "Imported from a speech recogniser that Optimum laid out: the sound is cut into windows, each is written down."
)
PREPROCESSOR = "preprocessor_config.json"
_PORT = "input_features"
_READ = ("feature_size", "hop_length", "n_fft", "sampling_rate", "chunk_length")
_DERIVED = ("n_samples", "nb_max_frames")
_NO_TIMES, _FIRST_TIME = "<|notimestamps|>", "<|0.00|>"
_STEP = 0.02  # seconds between two marks of time
_TAKEN = frozenset(
    {"decoder_start_token_id", "forced_decoder_ids", "lang_to_id",
     "task_to_id", "is_multilingual", "no_timestamps_token_id", "max_initial_timestamp_index", "return_timestamps",
     "prev_sot_token_id", "language", "task", "alignment_heads"}
)  # fmt: skip


def is_whisper(layout: Layout, signatures: dict[str, GraphSignature]) -> bool:
    """Whether an encoder takes features of sound [batch, mels, frames]."""
    return is_encoder_decoder(layout, signatures, _PORT) and len(signatures[ENCODER].inputs[_PORT].shape or ()) == 3


def whisper_fields(source: Source) -> dict[str, Any]:
    """The fields of the metadata of a speech recogniser."""
    words = source.words()
    start = start_token(source)
    program = _program(source)
    encode, components = encoder_parts(source, {_PORT: "audio.windows.features"})
    decoder, run = decoder_parts(source, {STATES_IN: "source"})
    parameters, template = _prompt(source, words, start)
    loop = answer_stage(source, [run], prompt={"template": template}, **_times(source, words, program))
    times = {"op": "transcript_times", "inputs": {"tokens": "each.generate.tokens", "windows": "audio.windows"}}
    outputs = {"text": {"modality": "text", "value": "text", "segments": "segments"}}
    return {
        "inputs": {"audio": {"modality": "audio", "program": "log_mel"}, "parameters": parameters},
        "outputs": outputs,
        "tokenizer": source.tokens(chat=False),
        "preprocess": {"log_mel": program},
        "components": {**components, "decoder": decoder},
        "stages": [
            {"id": "each", "for_each": "audio.windows", "body": [encode, loop]},
            {**times, "outputs": {"segments": "segments", "text": "text"}},
        ],
        **closing_fields(source, _TAKEN),
    }


def _program(source: Source) -> list[dict[str, Any]]:
    """The audio program: what WhisperFeatureExtractor computes with these numbers."""
    source.folder.need(PREPROCESSOR, "it says how sound becomes features")
    config, report = source.folder.json(PREPROCESSOR), source.report
    mels, hop, fft, rate, seconds = (config.integer(key, least=1) for key in _READ)
    for key in config.keys:
        _feature_row(source, config, key)
    if rate % hop:
        report.refused(PREPROCESSOR, "hop_length", f"{hop} does not divide the {rate} samples of a second")
    log_mel: dict[str, Any] = {"n_fft": fft, "hop": hop, "mels": mels, "mel_scale": "slaney", "log": "log10"}
    log_mel |= {"floor": 1e-10, "range": 8.0, "shift": 4.0, "scale": 4.0}
    return [
        {"decode": {}},
        {"mono": {}},
        {"resample": {"rate": rate}},
        {"window": {"seconds": seconds, "split": "silence", "skip_silence": True}},
        {"pad": {"seconds": seconds}},
        {"log_mel": log_mel},
    ]


def _feature_row(source: Source, config: ConfigNode, key: str) -> None:
    report, value = source.report, config.value[key]
    if key in _READ:
        report.mapped(PREPROCESSOR, key, "preprocess.log_mel")
    elif key in _DERIVED:
        report.dropped(PREPROCESSOR, key, "follows from the others")
    elif key == "mel_filters":
        report.dropped(PREPROCESSOR, key, "the program computes the same filters")
    elif (key == "padding_value" and value != 0) or (key in ("dither", "do_normalize") and value):
        report.refused(PREPROCESSOR, key, f"is {config.need(key).shown}; the program has no such step")
    else:
        report.dropped(PREPROCESSOR, key, "it changes no feature")


def _prompt(source: Source, words: dict[int, str], start: int) -> tuple[dict[str, Any], list[Any]]:
    """The request's parameters, and what an answer begins with."""
    config, report = source.generation, source.report
    parameters: dict[str, Any] = {}
    template: list[Any] = [words.get(start, "<|startoftranscript|>")]
    languages = [name[2:-2] for name in config.mapping("lang_to_id").keys if name.startswith("<|")]
    tasks = list(config.mapping("task_to_id").keys)
    for name, values, default in (("language", languages, "en"), ("task", tasks, "transcribe")):
        if values:
            first = default if default in values else values[0]
            parameters[name] = {"type": "choice", "values": values, "default": first}
            template.append(f"<|{{{name}}}|>")
            report.mapped(
                config.file, {"language": "lang_to_id", "task": "task_to_id"}[name], f"inputs.parameters.{name}"
            )
    if config.value.get("is_multilingual") and not languages:
        report.refused(config.file, "lang_to_id", "missing: the model is multilingual, its languages are not listed")
    if "forced_decoder_ids" in config:
        report.dropped(config.file, "forced_decoder_ids", "the loop's prompt has these tokens")
    if _NO_TIMES in words.values():
        parameters["timestamps"] = {"type": "boolean", "default": True}
        template.append({"text": _NO_TIMES, "when": "not parameters.timestamps"})
    return parameters, template


def _times(source: Source, words: dict[int, str], program: list[dict[str, Any]]) -> dict[str, Any]:
    """Marks of time: those of a window's length, the first answer's first one within the first second."""
    if _NO_TIMES not in words.values():
        return {}
    seconds = next(step["window"]["seconds"] for step in program if "window" in step)
    config = source.generation
    index = config.integer("max_initial_timestamp_index", 50)
    known = set(words.values())
    marks = {"first": _FIRST_TIME, "last": f"<|{seconds:.2f}|>", "latest_start": f"<|{index * _STEP:.2f}|>"}
    if missing := [mark for mark in marks.values() if mark not in known]:
        source.report.refused(TOKENIZER, "added_tokens", f"the time marks {', '.join(missing)} are not among them")
    if "max_initial_timestamp_index" in config:
        source.report.mapped(config.file, "max_initial_timestamp_index", "times.latest_start")
    return {"times": {**marks, "when": "parameters.timestamps"}}

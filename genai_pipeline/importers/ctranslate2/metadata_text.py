"""The inference metadata of an imported Whisper model, as YAML text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from genai_pipeline.importers.ctranslate2.config import WhisperConfig
from genai_pipeline.importers.ctranslate2.tokenizer_export import (
    END,
    FIRST_TIME,
    LATEST_START,
    NO_TIMES,
    START,
    TASKS,
    WhisperTokenizer,
)
from genai_pipeline.importers.package_writer import flow, wrapped

_RATE = 16000  # samples per second
_FRAMES_PER_SECOND = 100


def metadata_text(name: str, config: WhisperConfig, tokenizer: WhisperTokenizer, summary: str) -> str:
    """``inference_metadata.yaml`` for encoder.onnx and decoder.onnx with their tokenizer beside them."""
    seconds = config.frames // _FRAMES_PER_SECOND
    log_mel = {"n_fft": 400, "hop": _RATE // _FRAMES_PER_SECOND, "mels": config.mels, "mel_scale": "slaney"}
    log_mel |= {"log": "log10", "floor": 1e-10, "range": 8.0, "shift": 4.0, "scale": 4.0}
    return "\n".join(
        [
            "# Imported from a CTranslate2 model: the audio is cut into windows, and each is heard and written down.",
            'schema_version: "1"',
            f"name: {flow(name)}",
            f"summary: {flow(summary)}",
            "inputs:",
            "  audio: {modality: audio, program: log_mel}",
            "  parameters:",
            *_parameters(tokenizer),
            "outputs:",
            "  text: {modality: text, value: text, segments: segments}",
            f"tokenizer: {{file: tokenizer.json, eos: {flow([END])}}}",
            "preprocess:",
            "  log_mel:",
            "    - decode: {}",
            "    - mono: {}",
            f"    - resample: {{rate: {_RATE}}}",
            f"    - window: {{seconds: {seconds}, split: silence, skip_silence: true}}",
            f"    - pad: {{seconds: {seconds}}}",
            f"    - log_mel: {flow(log_mel)}",
            "components:",
            "  encoder: {model: encoder.onnx}",
            "  decoder:",
            "    model: decoder.onnx",
            "    kv:",
            *_states(),
            "stages:",
            *_stages(tokenizer),
            "generation: {defaults: {temperature: 0}}",
            f"limits: {{context_length: {config.context_length}}}",
            "",
        ]
    )


def _parameters(tokenizer: WhisperTokenizer) -> Iterator[str]:
    for name, tokens in (("language", tokenizer.languages), ("task", TASKS)):
        if tokenizer.languages:
            values = [token.removeprefix("<|").removesuffix("|>") for token in tokens]
            yield f"    {name}: {{type: choice, values: {flow(values)}, default: {flow(values[0])}}}"
    yield "    timestamps: {type: boolean, default: true}"


def _prompt(tokenizer: WhisperTokenizer) -> list[str | dict[str, str]]:
    multilingual = ["<|{language}|>", "<|{task}|>"] if tokenizer.languages else []
    return [START, *multilingual, {"text": NO_TIMES, "when": "not parameters.timestamps"}]


def _times(tokens: Sequence[str]) -> dict[str, str]:
    """Marks of time: the first of an answer is one of the first second."""
    latest = LATEST_START if LATEST_START in tokens else tokens[-1]
    return {"first": FIRST_TIME, "last": tokens[-1], "latest_start": latest, "when": "parameters.timestamps"}


def _states() -> Iterator[str]:
    own, other = "{layer}.decoder.{part}", "{layer}.encoder.{part}"
    yield f'      - {{update: in_place, past: "past_key_values.{own}", present: "present.{own}"}}'
    yield f'      - {{update: fixed, past: "past_key_values.{other}", present: "present.{other}", from: encoder}}'


def _stages(tokenizer: WhisperTokenizer) -> Iterator[str]:
    inputs = "input_ids: loop.tokens, attention_mask: loop.attention_mask, position_ids: loop.position_ids"
    yield "  - id: each"
    yield "    for_each: audio.windows"
    yield "    body:"
    yield "      - {run: encoder, inputs: {input_features: audio.windows.features}}"
    yield "      - id: generate"
    yield "        loop: decode"
    yield f"        prompt: {{template: {flow(_prompt(tokenizer))}}}"
    yield "        body:"
    yield "          - run: decoder"
    yield f"            inputs: {{{inputs}}}"
    yield "            outputs: {logits: logits}"
    yield "        logits: logits"
    yield f"        times: {flow(_times(tokenizer.tokens))}"
    yield "        suppress:"
    yield from wrapped(tokenizer.suppressed, "          ")
    if tokenizer.not_first:
        yield f"        begin_suppress: {flow(list(tokenizer.not_first))}"
    yield "  - op: transcript_times"
    yield "    inputs: {tokens: each.generate.tokens, windows: audio.windows}"
    yield "    outputs: {segments: segments, text: text}"

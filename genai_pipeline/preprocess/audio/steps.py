"""The steps of audio programs, with their parameters: what programs may be written of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.preprocess.audio import shaping
from genai_pipeline.preprocess.audio.features import LOG_MEL, TOKENS
from genai_pipeline.preprocess.audio.limits import HIGHEST_RATE, LOWEST_RATE
from genai_pipeline.preprocess.audio.resampling import QUALITIES
from genai_pipeline.preprocess.audio.sound import CHANNELS, FEATURES, SAMPLES, WINDOW_FEATURES, WINDOWS, Sound
from genai_pipeline.preprocess.program_steps import SOURCE, Step, StepKit, by_name

_ANY_SAMPLES: Final = {form: form for form in (CHANNELS, SAMPLES, WINDOWS)}


def _window_faults(given: Mapping[str, Any]) -> Iterator[str]:
    seconds, overlap, search = given["seconds"], given["overlap"], given["search"]
    if given["split"] == "silence" and overlap != 0:
        yield "windows that are split at silence have no overlap"
    if given["split"] == "length" and search is not None:
        yield "search is for split: silence"
    if _number(seconds) and _number(overlap) and overlap >= seconds:
        yield "the overlap must be shorter than the window"
    if _number(seconds) and _number(search) and search >= seconds:
        yield "search must be shorter than the window"


def _pad_faults(given: Mapping[str, Any]) -> Iterator[str]:
    named = [name for name in ("seconds", "samples", "multiple") if given[name] is not None]
    if len(named) != 1:
        yield f"it takes exactly one of seconds, samples and multiple, and has {len(named)}"
    if given["multiple"] is not None and given["longer"] != "refuse":
        yield "longer is for seconds and samples: no sound is longer than a multiple"


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


_DECODE = Step(
    "decode",
    "Reads a WAV, FLAC, OGG or MP3 file, or takes samples with their rate: float32 [channels, n] in -1 to 1.",
    {SOURCE: CHANNELS},
    {
        "max_seconds": CallParameter("number", "longest sound taken, in seconds", 3600.0, minimum=0.01),
        "max_bytes": CallParameter("integer", "largest file taken, in bytes", 512 << 20, minimum=1),
    },
    shaping.decode,
    publishes=frozenset({"samples", "seconds", "windows"}),
)
_MONO = Step("mono", "The mean of all channels: samples [n].", {CHANNELS: SAMPLES}, {}, shaping.mono)
_RESAMPLE = Step(
    "resample",
    "Changes the sample rate (soxr): ceil(n * rate / old rate) samples.",
    {CHANNELS: CHANNELS, SAMPLES: SAMPLES},
    {
        "rate": CallParameter("integer", "samples per second", minimum=LOWEST_RATE, maximum=HIGHEST_RATE),
        "quality": CallParameter("choice", "from the best to the fastest", "hq", values=QUALITIES),
    },
    shaping.resampled,
)
_WINDOW = Step(
    "window",
    "Cuts the sound into windows; later steps work on each window by itself.",
    {SAMPLES: WINDOWS},
    {
        "seconds": CallParameter("number", "the longest window, in seconds", minimum=0.01),
        "split": CallParameter(
            "choice", "cut at the length, or at the quietest place before it", "length", values=("length", "silence")
        ),
        "overlap": CallParameter("number", "seconds that a window shares with the one before", 0.0, minimum=0.0),
        "search": CallParameter(
            "number",
            "how long before the end of a window a quiet place may be, in seconds (half of it)",
            None,
            minimum=0.0,
        ),
        "skip_silence": CallParameter("boolean", "leave out windows with nothing louder than silence_level", False),
        "silence_level": CallParameter("number", "root mean square of the loudest 50 ms, in dBFS", -50.0, maximum=0.0),
    },
    shaping.windows,
    check=_window_faults,
)
_PAD = Step(
    "pad",
    "Appends padding up to a length; valid lengths go on to count the sound alone.",
    _ANY_SAMPLES,
    {
        "seconds": CallParameter("number", "length to pad to, in seconds", None, minimum=0.0),
        "samples": CallParameter("integer", "length to pad to, in samples", None, minimum=1),
        "multiple": CallParameter("integer", "pad to a multiple of so many samples", None, minimum=1),
        "value": CallParameter("number", "what is appended", 0.0),
        "longer": CallParameter("choice", "what becomes of a longer sound", "refuse", values=("refuse", "cut")),
    },
    shaping.padded,
    check=_pad_faults,
)
_NORMALIZE = Step(
    "normalize",
    "Scales the samples by themselves; padding stays as it is.",
    _ANY_SAMPLES,
    {
        "to": CallParameter(
            "choice", "zero mean and unit variance, or a highest absolute value of level", values=("unit", "peak")
        ),
        "epsilon": CallParameter("number", "added to the variance", 1e-7, minimum=0.0),
        "level": CallParameter("number", "the highest absolute value, for to: peak", 1.0, minimum=0.0),
    },
    shaping.normalized,
)

STEPS: Final[Mapping[str, Step]] = by_name(_DECODE, _MONO, _RESAMPLE, _WINDOW, _PAD, _NORMALIZE, LOG_MEL, TOKENS)
KIT: Final = StepKit(
    STEPS,
    ends=frozenset({CHANNELS, SAMPLES, WINDOWS, FEATURES, WINDOW_FEATURES}),
    finish=Sound.fields,
    parts=frozenset({WINDOWS, WINDOW_FEATURES}),
)

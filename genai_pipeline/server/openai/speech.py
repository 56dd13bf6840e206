"""Bodies of ``/v1/audio/speech``: what is said, how, and in which form the sound is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from genai_pipeline.server.api_errors import bad_request
from genai_pipeline.server.bodies import Fields
from genai_pipeline.server.task_runs import Borrowed, TaskOptions, named_parameter, read_options

FORMATS: Final = ("wav", "pcm")
_OTHERS: Final = ("mp3", "opus", "aac", "flac")  # of the interface
DEFAULT_VOICE: Final = "default"

Format = Literal["wav", "pcm"]


@dataclass(frozen=True, slots=True)
class SpeechBody:
    """A text to speak; ``sse``: its pieces are sent as events."""

    text: str
    format: Format
    sse: bool
    named: dict[str, Any]
    given: TaskOptions


def read_speech(fields: Fields) -> SpeechBody:
    """The body by what it means. Raises ApiError 400."""
    text = fields.must("input", fields.text("input"))
    if not text.strip():
        raise fields.wrong("input", "is empty")
    format = fields.choice("response_format", (*FORMATS, *_OTHERS)) or "wav"
    if format in _OTHERS:
        message = f"response_format: {format} cannot be made here; wav and pcm can"
        raise bad_request(message, "response_format", code="unsupported_field")
    named = {"instructions": fields.text("instructions"), "speed": fields.number("speed", low=0.25, high=4)}
    return SpeechBody(
        text,
        "wav" if format == "wav" else "pcm",
        fields.choice("stream_format", ("audio", "sse")) == "sse",
        {**named, "voice": _voice(fields)},
        read_options(fields),
    )


def parameters(borrowed: Borrowed, body: SpeechBody) -> dict[str, Any]:
    """The parameters of the package that the body gives. Raises ApiError 400 for a field that it has none for.

    A package without a choice of voices has one, ``default``; one without a speed has the speed 1.
    """
    declared = borrowed.package.parameters
    neutral: dict[str, tuple[Any, ...]] = {
        "voice": (DEFAULT_VOICE, borrowed.model),
        "speed": (1,),
        "instructions": ("",),
    }
    found = dict(body.given.parameters)
    for name, value in body.named.items():
        if name not in declared and value in neutral[name]:
            continue
        if name == "voice" and value is not None and name not in declared:
            message = f"voice: the model '{borrowed.model}' has one voice, '{DEFAULT_VOICE}'"
            raise bad_request(message, name, code="unsupported_field")
        found |= named_parameter(borrowed, name, value)
    return found


def _voice(fields: Fields) -> str | None:
    """A voice by its name, or as an object with its id."""
    value = fields.any("voice")
    if isinstance(value, dict):
        inner = Fields(value, "voice.")
        return inner.must("id", inner.text("id"))
    return fields.text("voice")

"""Forms of ``/v1/audio/transcriptions`` and the answers: JSON, text, subtitles."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.ops.timed_text import to_srt, to_vtt
from genai_pipeline.server.api_errors import bad_request
from genai_pipeline.server.bodies import Fields
from genai_pipeline.server.multipart import Part
from genai_pipeline.server.task_runs import TaskOptions, read_options
from genai_pipeline.tasks import Transcript

FORMATS: Final = ("json", "text", "srt", "verbose_json", "vtt")
STREAMED: Final = ("json", "text")
_GRANULARITIES: Final = "timestamp_granularities"
_VALUES: Final = ("temperature", "stream", "seed", "timeout", "parameters")  # written as JSON writes them
_LISTS: Final = (_GRANULARITIES, "include", "known_speaker_names", "known_speaker_references")
_UNSUPPORTED: Final = ("include", "known_speaker_names", "known_speaker_references")
_TEXTS: Final[Mapping[str, Callable[[Transcript], str]]] = {
    "text": lambda transcript: f"{transcript.text}\n",
    "srt": lambda transcript: to_srt(transcript.timed()),
    "vtt": lambda transcript: to_vtt(transcript.timed()),
}


@dataclass(frozen=True, slots=True)
class TranscriptionBody:
    """What is wanted of a sound; ``named``: fields of the interface that a package may declare as parameters."""

    file: bytes
    format: str
    stream: bool
    named: dict[str, Any]
    temperature: float | None
    given: TaskOptions


def form_fields(parts: Sequence[Part]) -> tuple[Fields, dict[str, bytes]]:
    """The fields of a form by their names, and its files. Raises ApiError 400."""
    fields: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    for part in parts:
        name = part.name.removesuffix("[]")
        if part.filename is not None:
            if name in files:
                raise bad_request(f"{name} is there twice", name)
            files[name] = part.data
        elif name in _LISTS:
            fields.setdefault(name, []).append(part.text())
        elif name in fields:
            raise bad_request(f"{name} is there twice", name)
        else:
            fields[name] = _value(part.text()) if name in _VALUES else part.text()
    return Fields(fields), files


def read_transcription(fields: Fields, files: Mapping[str, bytes]) -> TranscriptionBody:
    """The form by what it means. Raises ApiError 400."""
    if "file" not in files:
        raise fields.wrong("file", "is required, as a file of the form")
    fields.refuse(*_UNSUPPORTED)
    if fields.any("chunking_strategy") not in (None, "", "auto"):
        raise fields.wrong("chunking_strategy", "may be 'auto' only: the model says how sound is cut")
    format = fields.choice("response_format", FORMATS) or "json"
    stream = fields.boolean("stream") or False
    if stream and format not in STREAMED:
        raise fields.wrong("response_format", f"{format} cannot be streamed; {' and '.join(STREAMED)} can")
    _check_granularities(fields.list(_GRANULARITIES) or [], format)
    return TranscriptionBody(
        files["file"],
        format,
        stream,
        {name: value for name in ("language", "prompt") if (value := fields.text(name))},
        fields.number("temperature", low=0),
        read_options(fields),
    )


def written(transcript: Transcript, format: str, language: str | None) -> str | dict[str, Any]:
    """A transcript in a format: a text, or an object for JSON."""
    if format in _TEXTS:
        return _TEXTS[format](transcript)
    if format == "json":
        return {"text": transcript.text, "usage": usage(transcript)}
    segments = [{"id": index, **segment.to_dict()} for index, segment in enumerate(transcript.timed())]
    return {
        "task": "transcribe",
        "language": language,
        "duration": round(transcript.seconds, 3),
        "text": transcript.text,
        "segments": segments,
        "usage": usage(transcript),
    }


def usage(transcript: Transcript) -> dict[str, Any]:
    """What a transcription is counted by: seconds of sound, begun ones too."""
    return {"type": "duration", "seconds": math.ceil(transcript.seconds)}


def _check_granularities(wanted: list[Any], format: str) -> None:
    for name in wanted:
        if name == "word":
            message = f"{_GRANULARITIES}: words have no times here, segments have"
            raise bad_request(message, _GRANULARITIES, code="unsupported_field")
        if name != "segment":
            raise bad_request(f"{_GRANULARITIES} may have 'segment' only", _GRANULARITIES)
    if wanted and format not in ("verbose_json", "srt", "vtt"):
        message = f"{_GRANULARITIES} goes with response_format verbose_json, srt or vtt"
        raise bad_request(message, _GRANULARITIES)


def _value(text: str) -> Any:
    """A value that a form has as text; what cannot be read stays a text, which is then refused by its type."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text

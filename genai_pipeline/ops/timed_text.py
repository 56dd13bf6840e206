"""Texts with times, and the formats they are written in: SubRip (srt), WebVTT (vtt) and JSON.

Times are seconds from the beginning of the sound; formats round them to milliseconds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.errors import OperationFailedError

_ARROW: Final = "-->"  # between the times of a cue: a cue whose text has it would not be read back
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})  # of WebVTT, section 6.4
_BREAKS: Final = re.compile(r"\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029\0]")


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech: ``start`` and ``end`` in seconds, 0 <= start <= end, and what is said.

    Raises OperationFailedError for other times.
    """

    start: float
    end: float
    text: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start) and math.isfinite(self.end) and 0 <= self.start <= self.end):
            raise OperationFailedError(f"a segment cannot go from {self.start} to {self.end} s")

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Segment:
        """The segment of a mapping with ``start``, ``end`` and ``text``; further fields are not read."""
        return cls(float(fields["start"]), float(fields["end"]), str(fields["text"]))

    def to_dict(self) -> dict[str, Any]:
        """The segment as JSON-ready fields, times in seconds to the millisecond."""
        return {"start": round(self.start, 3), "end": round(self.end, 3), "text": self.text}


def to_text(segments: Iterable[Segment]) -> str:
    """What is said, as one line, the segments parted by one space."""
    return " ".join(text for segment in segments if (text := " ".join(segment.text.split())))


def to_srt(segments: Iterable[Segment]) -> str:
    """SubRip: numbered cues with times as hh:mm:ss,mmm. A segment without text has no cue."""
    return "".join(srt_cues(segments))


def srt_cues(segments: Iterable[Segment]) -> Iterator[str]:
    """The cues of ``to_srt`` one by one, as segments come."""
    number = 0
    for segment in segments:
        if lines := _lines(segment.text):
            number += 1
            times = f"{_clock(segment.start, ',')} {_ARROW} {_clock(segment.end, ',')}"
            yield f"{_apart(number)}{number}\n{times}\n{_arrowless(lines)}\n"


def to_vtt(segments: Iterable[Segment]) -> str:
    """WebVTT: cues with times as hh:mm:ss.mmm; &, < and > are escaped. A segment without text has no cue."""
    return "".join(vtt_cues(segments))


def vtt_cues(segments: Iterable[Segment]) -> Iterator[str]:
    """The header and the cues of ``to_vtt`` one by one, as segments come."""
    yield "WEBVTT\n"
    for segment in segments:
        if lines := _lines(segment.text):
            times = f"{_clock(segment.start, '.')} {_ARROW} {_clock(segment.end, '.')}"
            yield f"\n{times}\n{lines.translate(_ESCAPES)}\n"


def _apart(number: int) -> str:
    """An empty line parts a cue from the one before."""
    return "\n" if number > 1 else ""


def to_json(segments: Iterable[Segment], **more: Any) -> str:
    """One JSON object with ``text`` and ``segments``, and what ``more`` has (the duration, the language)."""
    found = list(segments)
    made = {"text": to_text(found), **more, "segments": [segment.to_dict() for segment in found]}
    return json.dumps(made, ensure_ascii=False, allow_nan=False) + "\n"


def _clock(seconds: float, point: str) -> str:
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours:02}:{minute:02}:{second:02}{point}{milliseconds:03}"


def _lines(text: str) -> str:
    """A text as lines of a cue: an empty line would end it, and lines have no space around them."""
    lines = (line.strip() for line in _BREAKS.sub("\n", text).split("\n"))
    return "\n".join(line for line in lines if line)


def _arrowless(lines: str) -> str:
    """SubRip has no escapes: the arrow of the times is written as one character."""
    return lines.replace(_ARROW, "\N{RIGHTWARDS ARROW}")

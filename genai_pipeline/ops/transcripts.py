"""Operations that make one transcript of what windows of a sound gave."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.errors import RequestError
from genai_pipeline.ops.context import OpContext

if TYPE_CHECKING:
    from genai_pipeline.preprocess.tokenizer import Tokenizer

Values = Mapping[str, Any]
Segment = dict[str, Any]  # start and end in seconds, text
_TIMESTAMP: Final = re.compile(r"<\|(\d+(?:\.\d+)?)\|>")
_NOT_IN_WORDS: Final = re.compile(r"[^\w']+")


def transcript_times(inputs: Values, params: Values, context: OpContext) -> Values:
    """Segments and text of the tokens of each window; a window without timestamps is one segment."""
    tokenizer = context.tokenizer(params["tokenizer"])
    windows = _windows(inputs["windows"], context)
    if len(windows) != len(inputs["tokens"]):
        message = f"stage '{context.stage}' has tokens of {len(inputs['tokens'])} windows for {len(windows)} windows"
        raise RequestError(message)
    segments = [
        segment
        for tokens, window in zip(inputs["tokens"], windows, strict=True)
        for segment in _timed([int(token) for token in tokens.reshape(-1)], window, tokenizer)
    ]
    return {"segments": segments, "text": " ".join(segment["text"] for segment in segments)}


def stitch(inputs: Values, params: Values, context: OpContext) -> Values:
    """The values in order, with what neighbours share once."""
    values = inputs["values"]
    if all(isinstance(value, str) for value in values):
        text = ""
        for value in values:
            text = _continued(text, value, params["words"])
        return {"text": text, "segments": None}
    segments: list[Segment] = []
    for value in values:
        if isinstance(value, str):
            raise RequestError(f"stage '{context.stage}' stitches texts and segments at once")
        segments = _followed(segments, list(value))
    return {"text": " ".join(segment["text"].strip() for segment in segments), "segments": segments}


def _windows(value: Any, context: OpContext) -> list[Mapping[str, Any]]:
    windows = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(window, Mapping) and "start" in window and "end" in window for window in windows):
        raise RequestError(f"stage '{context.stage}' takes windows with start and end in seconds")
    return list(windows)


def _timed(tokens: Sequence[int], window: Mapping[str, Any], tokenizer: Tokenizer) -> Iterator[Segment]:
    """The segments of one window: text between two timestamps, which never leave the window or go back."""
    begin, end = float(window["start"]), float(window["end"])
    at, held = begin, list[int]()
    for token in tokens:
        stamp = _TIMESTAMP.fullmatch(tokenizer.id_to_token(token) or "")
        if stamp is None:
            held.append(token)
            continue
        then = min(max(begin + float(stamp[1]), at), end)
        yield from _spoken(at, then, held, tokenizer)
        at, held = then, []
    yield from _spoken(at, end, held, tokenizer)


def _spoken(start: float, end: float, tokens: Sequence[int], tokenizer: Tokenizer) -> Iterator[Segment]:
    text = tokenizer.decode(tokens).strip() if tokens else ""
    if text:
        yield {"start": start, "end": end, "text": text}


def _continued(text: str, more: str, most: int) -> str:
    """``more`` behind ``text``, without the words at its beginning that end ``text``; the longest run counts."""
    before, after = text.split(), more.split()
    left, right = ([_NOT_IN_WORDS.sub("", word).lower() for word in words] for words in (before, after))
    shared = next((n for n in range(min(most, len(left), len(right)), 0, -1) if left[-n:] == right[:n]), 0)
    return " ".join([*before, *after[shared:]])


def _followed(segments: list[Segment], more: list[Segment]) -> list[Segment]:
    """Segments of the next window behind those there are; where windows overlap, each has its half."""
    if not segments or not more:
        return [*segments, *more]
    seam = (segments[-1]["end"] + more[0]["start"]) / 2
    if seam >= segments[-1]["end"]:
        return [*segments, *more]
    kept = [segment for segment in segments if _middle(segment) < seam]
    return [*kept, *(segment for segment in more if _middle(segment) >= seam)]


def _middle(segment: Segment) -> float:
    return (float(segment["start"]) + float(segment["end"])) / 2

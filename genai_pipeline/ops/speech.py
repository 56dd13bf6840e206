"""Operations on the outputs of speech models: CTC paths, and where there is speech."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import PackageError
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.labels import read_labels
from genai_pipeline.ops.vectors import softmaxed

Values = Mapping[str, Any]
Array = npt.NDArray[Any]
Span = tuple[float, float]
_BREATH: Final = 0.098  # seconds of silence at which a segment that is too long may be cut
_HYSTERESIS: Final = 0.15  # what ``low`` lies below ``threshold``
_SLACK: Final = 1e-3  # by which sums of probabilities may be off


def ctc_decode(inputs: Values, params: Values, context: OpContext) -> Values:
    """The best path; argmax by frame, equal neighbours merged, blanks dropped."""
    scores = _counting(inputs["scores"][0], inputs["length"])
    labels = _symbols(inputs["labels"], scores.shape[1], params["blank"], context)
    best = scores.argmax(1)
    starts = np.flatnonzero(np.diff(best, prepend=-1))  # where a run of equal symbols begins
    ends = np.append(starts[1:], len(best))
    chances = _best_chances(scores, best, params["kind"], context)
    symbols = [
        {
            "token": int(best[start]),
            "text": labels[best[start]] if labels else None,
            "start": float(start * params["seconds"]),
            "end": float(end * params["seconds"]),
            "confidence": float(chances[start:end].mean()),
        }
        for start, end in zip(starts, ends, strict=True)
        if best[start] != params["blank"]
    ]
    sure = float(np.mean([symbol["confidence"] for symbol in symbols])) if symbols else 0.0
    return {
        "text": "".join(str(symbol["text"]) for symbol in symbols) if labels else None,
        "tokens": np.array([[symbol["token"] for symbol in symbols]], np.int64).reshape(1, -1),
        "confidence": np.float32(sure),
        "symbols": symbols,
    }


def speech_segments(inputs: Values, params: Values, context: OpContext) -> Values:
    """Segments of speech in seconds, by the rules of Silero's detector, with margins."""
    chances = inputs["probabilities"][0]
    chunk = params["seconds"]
    given = inputs["seconds"]
    total = len(chances) * chunk if given is None else float(np.asarray(given).reshape(-1)[0])
    found = [(start * chunk, min(end * chunk, total)) for start, end in _runs(chances, params)]
    spoken = [span for span in found if span[1] - span[0] > params["min_speech"]]
    spans = _packed(_widened(spoken, params["margin"], total), params["pack"])
    return {"segments": [_segment(span, inputs["samples"], params["rate"]) for span in spans]}


def _counting(scores: Array, length: Any) -> Array:
    return scores if length is None else scores[: int(np.asarray(length).reshape(-1)[0])]


def _symbols(given: Sequence[Any] | None, count: int, blank: int, context: OpContext) -> list[str] | None:
    """A label for each symbol; where there is one less than symbols, they are those of all but the blank."""
    labels = read_labels(given, None, context)
    if blank >= count:
        raise PackageError(f"stage '{context.stage}' has the blank {blank} among {count} symbols")
    if labels is None or len(labels) == count:
        return labels
    if len(labels) != count - 1:
        hint = "a label for each symbol, or for each but the blank"
        raise PackageError(f"stage '{context.stage}' has {len(labels)} labels for {count} symbols", hint=hint)
    return [*labels[:blank], "", *labels[blank:]]


def _best_chances(scores: Array, best: Array, kind: str, context: OpContext) -> Array:
    """The probability of each frame's symbol."""
    if kind == "logits":
        scores = softmaxed(scores.astype(np.float32), 1)
    elif scores.size and not (scores.min() >= -_SLACK and scores.max() <= 1 + _SLACK):
        hint = "with: {kind: logits}"
        raise PackageError(f"stage '{context.stage}' has scores that are no probabilities", hint=hint)
    return scores[np.arange(len(best)), best]


def _runs(chances: Array, params: Values) -> Iterator[tuple[int, int]]:
    """Half-open ranges of chunks with speech in them, short ones included."""
    chunk, threshold = params["seconds"], params["threshold"]
    low = max(threshold - _HYSTERESIS, 0.01) if params["low"] is None else params["low"]
    longest = float("inf") if params["max_speech"] is None else params["max_speech"]
    start: int | None = None
    quiet: int | None = None  # where the silence that goes on began
    breath: tuple[int, int | None] | None = None  # the last silence to cut at, and where speech went on after it
    for i, chance in enumerate(chances):
        if chance >= threshold:
            start, quiet = i if start is None else start, None
            breath = (breath[0], i) if breath is not None and breath[1] is None else breath
        if start is None:
            continue
        if (i - start) * chunk > longest:
            yield start, i if breath is None else breath[0]
            start, quiet, breath = (i if breath is None else breath[1]), None, None
        elif chance < low:
            quiet = i if quiet is None else quiet
            silence = (i - quiet) * chunk
            if silence >= params["min_silence"]:
                yield start, quiet
                start = quiet = breath = None
            elif silence > _BREATH:
                breath = (quiet, None)
    if start is not None:
        yield start, len(chances)


def _widened(spans: Sequence[Span], margin: float, total: float) -> list[Span]:
    """Spans with margins: neighbours share a silence that is shorter than two of them."""
    gaps = [end[0] - start[1] for start, end in pairwise(spans)]
    room = [min(margin, gap / 2) for gap in gaps]
    return [
        (start - (room[i - 1] if i else min(margin, start)), min(end + (room[i] if i < len(room) else margin), total))
        for i, (start, end) in enumerate(spans)
    ]


def _packed(spans: Sequence[Span], longest: float | None) -> list[Span]:
    """Neighbours as one, as long as that is not longer than ``longest``."""
    packed: list[Span] = []
    for start, end in spans:
        if packed and longest is not None and end - packed[-1][0] <= longest:
            packed[-1] = (packed[-1][0], end)
        else:
            packed.append((start, end))
    return packed


def _segment(span: Span, samples: Array | None, rate: int) -> dict[str, Any]:
    start, end = span
    if samples is None:
        return {"start": start, "end": end}
    return {"start": start, "end": end, "samples": samples[:, round(start * rate) : round(end * rate)]}

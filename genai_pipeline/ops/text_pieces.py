"""Operations that cut text into pieces: sentences, and ranges that a model has labelled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.labels import read_labels
from genai_pipeline.ops.vectors import softmaxed

Values = Mapping[str, Any]
_SENTENCE: Final = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+")
_CLAUSE: Final = re.compile(r"(?<=[,;:–—])\s+")
_SPACE: Final = re.compile(r"\s+")


def split_text(inputs: Values, params: Values, context: OpContext) -> Values:
    """Sentences of at most ``length`` characters."""
    length = params["length"]
    sentences = [piece for sentence in _cut(inputs["text"], _SENTENCE) for piece in _within(sentence, length)]
    return {RESULT: list(_packed(sentences, length)) if params["merge"] else sentences}


def spans(inputs: Values, params: Values, context: OpContext) -> Values:
    """Runs of tokens with one label as ranges of the text."""
    scores, offsets, text = inputs["scores"][0], inputs["offsets"].reshape(-1, 2), inputs["text"]
    labels = read_labels(inputs["labels"], scores.shape[-1], context)
    if labels is None or len(offsets) != len(scores):
        message = f"stage '{context.stage}' has {len(scores)} labelled tokens and {len(offsets)} ranges of characters"
        raise RequestError(message if labels is not None else f"stage '{context.stage}' needs labels")
    chances = softmaxed(scores.astype(np.float32), -1)
    best = chances.argmax(-1)
    tokens = [(labels[label], float(chances[i, label]), offsets[i]) for i, label in enumerate(best)]
    return {"items": [_span(run, text) for run in _label_runs(tokens, params["outside"])]}


_Token = tuple[str, float, npt.NDArray[Any]]


def _label_runs(tokens: list[_Token], outside: str) -> Iterator[list[_Token]]:
    """Tokens of one range each; those without characters, such as [CLS], end a range."""
    run: list[_Token] = []
    for token in tokens:
        label, (start, end) = token[0], token[2]
        same = bool(run) and _bare(run[0][0]) == _bare(label) and not label.startswith("B-")
        if run and not (same and end > start):
            yield run
            run = []
        if label != outside and end > start:
            run.append(token)
    if run:
        yield run


def _bare(label: str) -> str:
    return label[2:] if label[:2] in ("B-", "I-") else label


def _span(run: list[_Token], text: str) -> dict[str, Any]:
    start, end = int(run[0][2][0]), int(run[-1][2][1])
    score = float(np.mean([chance for _, chance, _ in run]))
    return {"label": _bare(run[0][0]), "start": start, "end": end, "text": text[start:end], "score": score}


def _cut(text: str, pattern: re.Pattern[str]) -> list[str]:
    """The text cut behind every match, without surrounding spaces and empty pieces."""
    ends = [0, *(match.end() for match in pattern.finditer(text)), len(text)]
    return [piece for start, end in pairwise(ends) if (piece := text[start:end].strip())]


def _within(sentence: str, length: int) -> Iterator[str]:
    """A sentence in pieces of at most ``length`` characters, cut where it hurts least."""
    if len(sentence) <= length:
        yield sentence
        return
    for pattern in (_CLAUSE, _SPACE):
        parts = _cut(sentence, pattern)
        if len(parts) > 1:
            whole = (piece for part in parts for piece in _within(part, length))
            yield from _packed(whole, length)
            return
    yield from (sentence[start : start + length] for start in range(0, len(sentence), length))


def _packed(pieces: Iterator[str] | list[str], length: int) -> Iterator[str]:
    """Neighbours together as long as they fit."""
    held = ""
    for piece in pieces:
        if held and len(held) + 1 + len(piece) > length:
            yield held
            held = piece
        else:
            held = f"{held} {piece}" if held else piece
    if held:
        yield held

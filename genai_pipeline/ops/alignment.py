"""When words were said: dynamic time warping over the attention of a recogniser's tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import RequestError
from genai_pipeline.ops.context import OpContext

Values = Mapping[str, Any]
Floats = npt.NDArray[np.float32]


def align_words(inputs: Values, params: Values, context: OpContext) -> Values:
    """Words with the time from their first token's first frame to the next word's."""
    frames = inputs["weights"].shape[3] if inputs["frames"] is None else int(inputs["frames"].reshape(-1)[0])
    weights = inputs["weights"][0, :, :, :frames].astype(np.float32)
    tokens = [int(token) for token in inputs["tokens"].reshape(-1)]
    if len(tokens) != weights.shape[1]:
        raise RequestError(f"stage '{context.stage}' has attention of {weights.shape[1]} tokens for {len(tokens)}")
    if not tokens or not weights.size:
        return {"words": []}
    offset = 0.0 if inputs["start"] is None else float(inputs["start"].reshape(-1)[0])
    times = first_frames(-_smoothed(weights, params["smooth"])) * params["seconds"] + offset
    end = frames * params["seconds"] + offset
    return {"words": _words(tokens, np.append(times, end), params["tokenizer"], context)}


def first_frames(cost: Floats) -> npt.NDArray[np.int64]:
    """The first frame of each token on the path through cost[n, f] from corner to corner whose sum is least.

    A step goes on by a token, a frame or both; of equal paths the one that goes on by both.
    """
    tokens, frames = cost.shape
    total = np.full((tokens + 1, frames + 1), np.inf, np.float64)
    total[0, 0] = 0
    steps = np.zeros((tokens + 1, frames + 1), np.int8)
    for diagonal in range(2, tokens + frames + 1):  # all cells i + j = diagonal at once
        i = np.arange(max(1, diagonal - frames), min(tokens, diagonal - 1) + 1)
        j = diagonal - i
        ways = np.stack([total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]])
        steps[i, j] = ways.argmin(0)
        total[i, j] = cost[i - 1, j - 1] + ways.min(0)
    first = np.zeros(tokens, np.int64)
    at, frame = tokens, frames
    while at > 0:
        first[at - 1] = frame - 1
        step = steps[at, frame]
        at, frame = at - (step != 2), frame - (step != 1)
    return first


def _smoothed(weights: Floats, width: int) -> Floats:
    """Heads on one scale for each frame, smoothed by a running median, and averaged [n, f]."""
    spread = weights.std(1, keepdims=True)
    scaled = (weights - weights.mean(1, keepdims=True)) / np.where(spread > 0, spread, 1)
    half = min(width // 2, scaled.shape[2] - 1)
    padded = np.pad(scaled, ((0, 0), (0, 0), (half, half)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1, axis=2)
    found: Floats = np.median(windows, -1).mean(0)
    return found


def _words(tokens: list[int], times: npt.NDArray[Any], name: str | None, context: OpContext) -> list[dict[str, Any]]:
    """Tokens grouped by the spaces in front of words; ``times`` has one more than tokens: the end."""
    tokenizer = context.tokenizer(name)
    texts = [tokenizer.decode(tokens[: i + 1]) for i in range(len(tokens))]
    pieces = [text[len(before) :] for before, text in zip(["", *texts], texts, strict=False)]
    begins = [i for i, piece in enumerate(pieces) if i == 0 or piece.startswith(" ")]
    words = []
    for first, last in zip(begins, [*begins[1:], len(tokens)], strict=True):
        text = "".join(pieces[first:last]).strip()
        if text:
            words.append({"start": float(times[first]), "end": float(times[last]), "text": text})
    return words

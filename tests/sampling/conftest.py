from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pytest

from genai_pipeline.sampling.options import GenerationOptions

NEVER = -math.inf


def f32(value: float) -> float:
    """A float rounded to float32."""
    return value if math.isinf(value) else float(struct.unpack("f", struct.pack("f", value))[0])


class PlainTwin:
    """Every processor and filter once more, from its definition, on lists of Python numbers."""

    @staticmethod
    def number(seed: int, choice: int, index: int, lane: int = 0) -> float:
        """The documented random number, from numpy's own generator."""
        counter = np.array([0, index, lane, 0], np.uint64)
        philox = np.random.Philox(key=np.array([seed, choice], np.uint64), counter=counter)
        return float(np.random.Generator(philox).random())

    @staticmethod
    def processed(
        logits: Sequence[float],
        options: GenerationOptions,
        prompt: Sequence[int] = (),
        output: Sequence[int] = (),
        banned: Collection[int] = (),
        allowed: Collection[int] | None = None,
    ) -> list[float]:
        """Logits after bias, penalties, bans and mask."""
        x, history = list(logits), [*prompt, *output]
        for token, bias in options.logit_bias.items():
            x[token] = f32(x[token] + bias)
        if options.repetition_penalty != 1:
            for token in set(history):
                penalty = options.repetition_penalty
                x[token] = f32(x[token] / penalty if x[token] > 0 else x[token] * penalty)
        for token, count in Counter(output).items():
            x[token] = f32(x[token] - (count * options.frequency_penalty + options.presence_penalty))
        for token, length in PlainTwin.dry_matches(options, history).items():
            x[token] = f32(
                x[token] - options.dry_multiplier * options.dry_base ** (length - options.dry_allowed_length)
            )
        never = {*PlainTwin.ngram_bans(options.no_repeat_ngram_size, history), *options.banned_token_ids, *banned}
        return [NEVER if i in never or (allowed is not None and i not in allowed) else v for i, v in enumerate(x)]

    @staticmethod
    def dry_matches(options: GenerationOptions, history: Sequence[int]) -> dict[int, int]:
        """Token -> length of the longest match it would go on with."""
        if not options.dry_multiplier:
            return {}
        seen = history[-options.dry_range :] if options.dry_range else history
        found: dict[int, int] = {}
        for at in range(len(seen) - 1):
            length = 0
            while length < 50 and at - length >= 0 and seen[at - length] == seen[len(seen) - 1 - length]:
                if seen[at - length] in options.dry_sequence_breakers:
                    break
                length += 1
            if length >= options.dry_allowed_length and seen[at + 1] not in options.dry_sequence_breakers:
                found[seen[at + 1]] = max(length, found.get(seen[at + 1], 0))
        return found

    @staticmethod
    def ngram_bans(size: int, history: Sequence[int]) -> set[int]:
        """Tokens that would complete an n-gram of the history."""
        if not size or len(history) < size - 1:
            return set()
        tail = list(history[len(history) - size + 1 :])
        grams = [list(history[i : i + size]) for i in range(len(history) - size + 1)]
        return {gram[-1] for gram in grams if gram[:-1] == tail}

    @staticmethod
    def distribution(
        x: Sequence[float], options: GenerationOptions, coin: float = 1.0, mu: float | None = None
    ) -> dict[int, float]:
        """Token -> probability, in id order, of what temperature and filters leave."""
        order = sorted((i for i in range(len(x)) if x[i] > NEVER), key=lambda i: (-x[i], i))
        if options.top_k:
            order = order[: options.top_k]
        top = x[order[0]]
        kept = {i: math.exp((x[i] - top) / options.temperature) for i in order}
        if options.top_p < 1:
            kept = _prefix(kept, sorted(kept, key=lambda i: (-kept[i], i)), options.top_p)
        least = options.min_p * max(kept.values())
        kept = {i: w for i, w in kept.items() if w >= least}
        if options.typical_p < 1:
            kept = {i: w for i, w in kept.items() if w > 0}
            p = _normal(kept)
            entropy = -sum(q * math.log(q) for q in p.values())
            kept = _prefix(kept, sorted(kept, key=lambda i: (abs(-math.log(p[i]) - entropy), i)), options.typical_p)
        p = _normal(kept)
        least = options.top_a * max(p.values()) ** 2
        kept = {i: w for i, w in kept.items() if p[i] >= least}
        if coin < options.xtc_probability:
            p = _normal(kept)
            above = sorted((i for i in kept if p[i] >= options.xtc_threshold), key=lambda i: (-p[i], i))
            dropped = set(above[:-1])
            kept = {i: w for i, w in kept.items() if i not in dropped}
        if mu is not None:
            p = _normal(kept)
            expected = {i: w for i, w in kept.items() if p[i] > 0 and -math.log2(p[i]) <= mu}
            kept = expected or dict([min(kept.items(), key=lambda item: (-item[1], item[0]))])
        return {i: q for i, q in sorted(_normal(kept).items()) if q > 0}

    @staticmethod
    def drawn(distribution: dict[int, float], number: float) -> int:
        """The token into which a number in [0, 1) falls, tokens laid end to end by id."""
        reached = 0.0
        for token, probability in distribution.items():
            reached += probability
            if number < reached:
                return token
        return max(distribution)

    @staticmethod
    def log_softmax(x: Sequence[float]) -> list[float]:
        """Log probabilities of all tokens."""
        top = max(x)
        total = math.log(math.fsum(math.exp(v - top) for v in x))
        return [v - top - total for v in x]


def _normal(weights: dict[int, float]) -> dict[int, float]:
    total = math.fsum(weights.values())
    return {i: w / total for i, w in weights.items()}


def _prefix(weights: dict[int, float], order: Sequence[int], mass: float) -> dict[int, float]:
    kept: dict[int, float] = {}
    goal = mass * math.fsum(weights.values())
    reached = 0.0
    for token in order:
        if reached >= goal:
            break
        kept[token] = weights[token]
        reached += weights[token]
    return kept


@pytest.fixture(scope="session")
def twin() -> type[PlainTwin]:
    return PlainTwin


@pytest.fixture(scope="session")
def bitmask() -> Any:
    """Makes an int32 mask row from the tokens it allows."""

    def make(allowed: Collection[int], vocabulary: int) -> Any:
        words = np.zeros((vocabulary + 31) // 32, np.uint32)
        for token in allowed:
            words[token // 32] |= np.uint32(1 << token % 32)
        return words.view(np.int32)

    return make

"""Every processor and filter against its plain twin, token by token, alone and in mixed batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from genai_pipeline.sampling.options import GenerationOptions
from genai_pipeline.sampling.sampler import Draw, choose_tokens
from genai_pipeline.sampling.state import sampling_state

CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "plain": {},
    "hot": {"temperature": 3.0},
    "cold": {"temperature": 0.05},
    "bias": {"logit_bias": {3: 2.5, 7: -100.0, 0: 0.1}, "temperature": 0.7},
    "repetition": {"repetition_penalty": 1.3},
    "repetition, greedy": {"repetition_penalty": 0.8, "temperature": 0.0},
    "frequency": {"frequency_penalty": 0.7},
    "presence": {"presence_penalty": -1.5},
    "penalties": {"repetition_penalty": 1.1, "frequency_penalty": 0.3, "presence_penalty": 0.4, "top_k": 9},
    "3-grams": {"no_repeat_ngram_size": 3, "temperature": 0.4},
    "2-grams, greedy": {"no_repeat_ngram_size": 2, "temperature": 0.0},
    "banned": {"banned_token_ids": (1, 5, 11), "temperature": 0.5},
    "forced": {"forced_token_ids": (4, 4, 9)},
    "dry": {"dry_multiplier": 0.8, "dry_sequence_breakers": (2, 13)},
    "dry, greedy, range": {
        "dry_multiplier": 2.0,
        "dry_base": 1.2,
        "dry_allowed_length": 1,
        "dry_sequence_breakers": (),
        "dry_range": 12,
        "temperature": 0.0,
    },
    "top_k": {"top_k": 5},
    "top_k 1": {"top_k": 1},
    "top_p": {"top_p": 0.8},
    "top_p small": {"top_p": 0.01},
    "top_k, top_p": {"top_k": 12, "top_p": 0.7, "temperature": 1.4},
    "min_p": {"min_p": 0.1},
    "top_p, min_p": {"top_p": 0.95, "min_p": 0.05},
    "typical": {"typical_p": 0.6},
    "top_k, typical": {"top_k": 15, "typical_p": 0.9},
    "top_a": {"top_a": 0.2},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    "xtc always": {"xtc_probability": 1.0, "xtc_threshold": 0.0, "top_k": 8},
    "mirostat": {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.2},
    "mirostat, tight": {"mirostat": 2, "mirostat_tau": 0.1, "mirostat_eta": 1.0},
    "everything": {
        "logit_bias": {6: 1.5},
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "dry_multiplier": 0.5,
        "dry_sequence_breakers": (3,),
        "no_repeat_ngram_size": 4,
        "banned_token_ids": (8,),
        "temperature": 1.2,
        "top_k": 25,
        "top_p": 0.95,
        "min_p": 0.01,
        "typical_p": 0.95,
        "top_a": 0.05,
        "xtc_probability": 0.3,
        "xtc_threshold": 0.2,
    },
}
ALPHABET = 17  # tokens that occur often, so that passages repeat


class Row:
    """One sequence, followed by the sampler and by the twin."""

    def __init__(self, twin: Any, options: GenerationOptions, seed: int, vocabulary: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.twin, self.options, self.seed, self.vocabulary = twin, options, seed, vocabulary
        self.prompt = self.generator.integers(0, ALPHABET, 40).tolist()
        self.output: list[int] = []
        self.state = sampling_state(options, self.prompt)
        self.mu = 2 * options.mirostat_tau

    def logits(self) -> np.ndarray[Any, Any]:
        row = (3 * self.generator.normal(size=self.vocabulary)).astype(np.float32)
        row[:ALPHABET] += 4
        return row

    def draw(self, banned: Any = None, mask: Any = None) -> Draw:
        return Draw(self.options, self.seed, 1, len(self.output), banned, self.state, mask)

    def expected(self, logits: Any, banned: Any = (), allowed: Any = None) -> int:
        options, position = self.options, len(self.output)
        if position < len(options.forced_token_ids):
            return options.forced_token_ids[position]
        x = self.twin.processed(logits.tolist(), options, self.prompt, self.output, banned, allowed)
        if options.temperature == 0:
            return x.index(max(x))
        coin = self.twin.number(self.seed, 1, position, 1)
        spread = self.twin.distribution(x, options, coin, self.mu if options.mirostat else None)
        token = int(self.twin.drawn(spread, self.twin.number(self.seed, 1, position)))
        self.mu -= options.mirostat_eta * (-np.log2(spread[token]) - options.mirostat_tau)
        return token

    def accept(self, chosen: Any) -> None:
        self.output.append(chosen.token)
        if self.state is not None:
            self.state.accept(chosen)


@pytest.mark.parametrize("vocabulary", [60, 9001])
@pytest.mark.parametrize("name", CASES)
def test_each_case_follows_its_twin(name: str, vocabulary: int, twin: Any) -> None:
    row = Row(twin, GenerationOptions(**CASES[name]), 11, vocabulary)
    for _ in range(40 if vocabulary < 100 else 4):
        logits = row.logits()
        expected = row.expected(logits)
        (chosen,) = choose_tokens(logits[None].copy(), [row.draw()])
        assert chosen.token == expected
        row.accept(chosen)


@pytest.mark.parametrize("name", ["greedy", "plain", "everything", "forced", "mirostat"])
def test_bans_and_masks_hold_beside_every_option(name: str, twin: Any, bitmask: Any) -> None:
    vocabulary = 70
    row = Row(twin, GenerationOptions(**CASES[name]), 5, vocabulary)
    for _ in range(25):
        allowed = {4, 9, *row.generator.choice(vocabulary, 30, replace=False).tolist()}
        banned = np.array(sorted(set(range(vocabulary)) - {4, 9})[::3])
        logits = row.logits()
        expected = row.expected(logits, set(banned.tolist()), allowed)
        draw = row.draw(banned, bitmask(allowed, vocabulary))
        (chosen,) = choose_tokens(logits[None].copy(), [draw])
        assert chosen.token == expected
        row.accept(chosen)


@pytest.mark.parametrize("vocabulary", [64, 5000])
def test_rows_of_mixed_batches_are_bit_identical_in_any_order(vocabulary: int, twin: Any) -> None:
    kinds = [
        {**options, **extra}
        for options in CASES.values()
        for extra in ({}, {"logprobs": True, "top_logprobs": 3, "logprobs_of": "processed"})
    ]
    kinds.append({"logprobs": True, "top_logprobs": 20})
    generator = np.random.default_rng(2)
    together = [Row(twin, GenerationOptions(**kind), seed, vocabulary) for seed, kind in enumerate(kinds)]
    alone = [Row(twin, GenerationOptions(**kind), seed, vocabulary) for seed, kind in enumerate(kinds)]
    for _ in range(6):
        logits = [row.logits() for row in together]
        order = generator.permutation(len(kinds)).tolist()
        batch = np.stack([logits[i] for i in order])
        chosen = dict(zip(order, choose_tokens(batch, [together[i].draw() for i in order]), strict=True))
        for index, row in enumerate(alone):
            (single,) = choose_tokens(row.logits()[None], [row.draw()])
            assert single == chosen[index]
            row.accept(single)
            together[index].accept(chosen[index])


def test_states_change_only_with_accepted_tokens(twin: Any) -> None:
    row = Row(twin, GenerationOptions(**CASES["everything"]), 3, 60)
    logits = row.logits()
    first = choose_tokens(logits[None].copy(), [row.draw()])
    assert choose_tokens(logits[None].copy(), [row.draw()]) == first


def test_prompts_may_have_tokens_that_the_model_cannot_choose() -> None:
    options = GenerationOptions(
        repetition_penalty=2.0,
        no_repeat_ngram_size=1,
        dry_multiplier=1.0,
        dry_allowed_length=1,
        dry_sequence_breakers=(),
        temperature=0.0,
    )
    state = sampling_state(options, [900, 1, 900, 2, 900])
    logits = np.array([[0, 9, 8, 1]], np.float32)
    assert choose_tokens(logits, [Draw(options, 0, 0, 0, None, state)])[0].token == 3

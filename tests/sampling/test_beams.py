"""What beam search keeps and when it stops, on offers given by hand; what a row of logits has to offer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import GraphRunError, OptionError, RequestError
from genai_pipeline.sampling.beams import BeamSearch, offer_tokens
from genai_pipeline.sampling.options import GenerationOptions
from genai_pipeline.sampling.params import resolve_options
from genai_pipeline.sampling.sampler import Draw
from genai_pipeline.sampling.state import sampling_state
from genai_pipeline.types import TokenLogprob

END = 1
DECLARED = {"num_beams": 1}


def begun(max_tokens: int = 10, **options: Any) -> BeamSearch:
    return BeamSearch(GenerationOptions(**{"num_beams": 2, **options}), max_tokens, {END})


def offers(*beams: dict[int, float]) -> list[list[TokenLogprob]]:
    return [[TokenLogprob(token, logprob) for token, logprob in beam.items()] for beam in beams]


def kept(search: BeamSearch) -> list[tuple[tuple[int, ...], float, int]]:
    return [(beam.tokens, beam.logprob, beam.parent) for beam in search.beams]


def test_the_best_sums_go_on_with_their_parents() -> None:
    search = begun()
    search.advance(offers({5: -1.0, 6: -2.0, 7: -3.0}))
    assert kept(search) == [((5,), -1.0, 0), ((6,), -2.0, 0)]
    search.advance(offers({8: -4.0, 9: -4.5}, {8: -0.5, 9: -1.0}))
    assert kept(search) == [((6, 8), -2.5, 1), ((6, 9), -3.0, 1)]


def test_of_equal_sums_the_better_beam_and_then_the_better_token_comes_first() -> None:
    search = begun()
    search.advance(offers({5: -1.0, 6: -2.0}))
    search.advance(offers({8: -2.0, 9: -2.0}, {7: -1.0}))
    assert kept(search) == [((5, 8), -3.0, 0), ((5, 9), -3.0, 0)]


def test_an_end_counts_only_among_the_best() -> None:
    search = begun()
    search.advance(offers({5: -1.0, 6: -2.0, END: -3.0}))
    assert search.finished == []
    search.advance(offers({END: -0.5, 7: -2.0}, {END: -9.0, 8: -2.0}))
    assert [(found.tokens, found.score) for found in search.finished] == [((5, END), -1.5 / 2)]
    assert [beam.tokens for beam in search.beams] == [(5, 7), (6, 8)]


@pytest.mark.parametrize(("penalty", "best"), [(0.0, (END,)), (1.0, (5, END)), (2.0, (5, END))])
def test_the_length_penalty_decides_between_short_and_long(penalty: float, best: tuple[int, ...]) -> None:
    search = begun(length_penalty=penalty)
    search.advance(offers({END: -1.0, 5: -0.9}))
    search.advance(offers({END: -0.3, 6: -9.0}))
    assert search.finished[0].tokens == best
    assert search.over


def test_without_early_stopping_a_better_beam_goes_on() -> None:
    for early_stopping in (False, True):
        search = begun(early_stopping=early_stopping)
        search.advance(offers({5: -0.1, 6: -0.2}))
        search.advance(offers({END: -4.0, 7: -4.1}, {END: -4.0, 8: -0.1}))  # (6, 8) is far better than what has ended
        assert [found.tokens for found in search.finished] == [(5, END)]
        search.advance(offers({END: -0.1, 9: -0.05}, {9: -5.0}))
        assert len(search.finished) == 2
        assert search.over == early_stopping


def test_a_search_ends_when_no_beam_promises_more() -> None:
    search = begun()
    search.advance(offers({END: -0.1, 5: -3.0}))
    assert not search.over  # only one has ended
    search.advance(offers({END: -0.1, 6: -5.0}))
    assert search.over
    assert [found.tokens for found in search.finished] == [(END,), (5, END)]


def test_the_last_token_ends_the_best() -> None:
    search = begun(max_tokens=2)
    search.advance(offers({5: -1.0, 6: -2.0}))
    search.advance(offers({7: -1.0, 8: -3.0}, {9: -0.5, END: -0.1}))
    assert search.over
    assert [found.tokens for found in search.finished] == [(5, 7), (6, END)]


def test_fewer_offers_than_beams_and_none() -> None:
    search = begun(num_beams=3)
    search.advance(offers({5: 0.0}))
    assert kept(search) == [((5,), 0.0, 0)]
    search.advance(offers({5: -1.0, 6: -1.5}))
    search.advance([[], []])
    assert search.over
    assert search.finished == []


def draw(position: int = 0, prompt: tuple[int, ...] = (), **given: Any) -> Draw:
    options = resolve_options({"num_beams": 2, **given}, DECLARED)
    return Draw(options, 0, 0, position, None, sampling_state(options, prompt))


def test_offers_are_log_probabilities_after_bans_and_penalties() -> None:
    row = np.array([2.0, 1.0, 3.0, -1.0], np.float32)
    found = offer_tokens(row.copy(), draw(prompt=(0,), banned_token_ids=[2], repetition_penalty=4.0), 3)
    left = {0: 0.5, 1: 1.0, 3: -1.0}
    total = math.log(sum(map(math.exp, left.values())))
    assert [one.token for one in found] == [1, 0, 3]
    assert [one.logprob for one in found] == pytest.approx([left[token] - total for token in (1, 0, 3)], abs=1e-12)
    assert [one.token for one in offer_tokens(np.zeros(5, np.float32), draw(), 3)] == [0, 1, 2]


def test_a_forced_token_is_certain_and_a_beam_may_have_nothing_to_offer() -> None:
    row = np.zeros(4, np.float32)
    assert offer_tokens(row.copy(), draw(forced_token_ids=[3]), 2) == (TokenLogprob(3, 0.0),)
    assert len(offer_tokens(row.copy(), draw(1, forced_token_ids=[3]), 2)) == 2
    assert offer_tokens(row.copy(), draw(banned_token_ids=[0, 1, 2, 3]), 2) == ()
    with pytest.raises(RequestError, match="the model has 4 tokens"):
        offer_tokens(row.copy(), draw(forced_token_ids=[4]), 2)
    with pytest.raises(GraphRunError, match="nan"):
        offer_tokens(np.array([0.0, np.nan], np.float32), draw(), 2)


@pytest.mark.parametrize(
    ("options", "param", "message"),
    [
        ({"num_beams": 0}, "num_beams", "between 1 and 16"),
        ({"num_beams": 2, "length_penalty": 11}, "length_penalty", "between -10 and 10"),
        ({"num_beams": 2, "early_stopping": "never"}, "early_stopping", "early_stopping"),
        ({"length_penalty": 2.0}, "length_penalty", "no effect without num_beams"),
        ({"early_stopping": True}, "early_stopping", "no effect without num_beams"),
        ({"num_beams": 2, "n": 3}, "n", "n is 3, more than num_beams, which is 2"),
        ({"num_beams": 2, "temperature": 1}, "temperature", "draws nothing"),
        ({"num_beams": 2, "mirostat": 2}, "mirostat", "draws nothing"),
        ({"num_beams": 2, "stop": "x"}, "stop", "change until the search ends"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        resolve_options(options, DECLARED)
    assert caught.value.param == param


def test_only_declared_and_greedy_without_a_word() -> None:
    with pytest.raises(OptionError, match="does not declare beam search"):
        resolve_options({"num_beams": 2})
    assert resolve_options({"num_beams": 2}, None, {"num_beams": True}).greedy
    assert resolve_options({}, {"num_beams": 2}).greedy
    assert not resolve_options({}, {"num_beams": 1}).greedy
    assert resolve_options({"num_beams": 2, "temperature": 0}, DECLARED).num_beams == 2


def test_defaults_of_the_package_step_back() -> None:
    search = {"num_beams": 4, "length_penalty": 2.0}
    for asked in ({"temperature": 0.7}, {"temperature": 1.0}, {"top_k": 3}, {"logprobs": True}, {"stop": "x"}):
        found = resolve_options(asked, search)
        assert found.num_beams == 1
        assert found.temperature == asked.get("temperature", 1.0)
    assert resolve_options({"temperature": 0}, search).num_beams == 4
    sampling = {"temperature": 0.7, "top_p": 0.9, "num_beams": 1}
    found = resolve_options({"num_beams": 3}, sampling)
    assert (found.num_beams, found.temperature, found.top_p) == (3, 0.0, 1.0)
    assert resolve_options({"num_beams": 1}, sampling).top_p == 0.9
    with pytest.raises(OptionError, match=r"stop \(the package's default\) does not go with num_beams"):
        resolve_options({"num_beams": 3}, {"stop": "x", "num_beams": 1})

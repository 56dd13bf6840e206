from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import RequestError
from genai_pipeline.ops.context import OpContext

SHAPE = [1, 4, 50, 50]


def test_noise_is_of_its_kind(call: Any) -> None:
    normal = call("noise", {}, shape=SHAPE, scale=2)["result"]
    assert (normal.shape, normal.dtype) == (tuple(SHAPE), np.float32)
    assert (normal.mean(), normal.std()) == pytest.approx((0, 2), abs=0.1)
    uniform = call("noise", {}, shape=SHAPE, kind="uniform")["result"]
    assert 0 <= uniform.min() <= uniform.max() < 1
    assert (uniform.mean(), uniform.std()) == pytest.approx((0.5, 12**-0.5), abs=0.02)


def test_the_same_seed_stage_item_and_step_give_the_same_noise(call: Any) -> None:
    contexts = [
        OpContext(seed=1, stage="a"),
        OpContext(seed=2, stage="a"),
        OpContext(seed=1, stage="b"),
        OpContext(seed=1, stage="a", item=(0,)),
        OpContext(seed=1, stage="a", item=(1,)),
        OpContext(seed=1, stage="a", start=3, stop=4),
    ]
    drawn = [call("noise", {}, context, shape=[8])["result"].tolist() for context in contexts]
    assert len({tuple(numbers) for numbers in drawn}) == len(contexts)
    assert drawn == [call("noise", {}, context, shape=[8])["result"].tolist() for context in contexts]


def test_noise_has_a_bound(call: Any) -> None:
    with pytest.raises(RequestError, match="draws an array"):
        call("noise", {}, shape=[1 << 20, 1 << 20])


@pytest.mark.parametrize(
    ("spread_is", "spread"),
    [("deviation", 0.5), ("variance", 0.25), ("log_deviation", np.log(0.5)), ("log_variance", np.log(0.25))],
)
def test_gaussian_is_the_mean_and_noise_of_its_deviation(call: Any, spread_is: str, spread: float) -> None:
    mean = np.linspace(-3, 3, 7, dtype=np.float32)[np.newaxis]
    inputs = {"mean": mean, "spread": np.full_like(mean, spread)}
    noise = call("noise", {}, OpContext(seed=5), shape=[1, 7])["result"]
    found = call("gaussian", inputs, OpContext(seed=5), spread_is=spread_is)["result"]
    np.testing.assert_allclose(found, mean + 0.5 * noise, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(call("gaussian", inputs, spread_is=spread_is, scale=0)["result"], mean)


def test_gaussian_takes_one_spread_for_each_mean(call: Any) -> None:
    with pytest.raises(RequestError, match="spread"):
        call("gaussian", {"mean": np.ones((1, 2)), "spread": np.ones((1, 3))})

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from genai_pipeline.errors import RequestError
from genai_pipeline.ops.context import OpContext

SCORES = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=8)


def floats(*numbers: float) -> Any:
    return np.array([numbers], np.float32)


@given(SCORES)
def test_argmax_is_the_first_of_the_largest(call: Any, scores: list[float]) -> None:
    found = call("argmax", {"value": floats(*scores)})["result"]
    assert found.dtype == np.int64
    assert found.tolist() == [scores.index(max(scores))]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.data())
def test_top_k_goes_down_and_keeps_the_order_of_equal_ones(call: Any, numbers: list[int], data: Any) -> None:
    k = data.draw(st.integers(1, len(numbers)))
    found = call("top_k", {"value": np.array([numbers])}, k=k)
    ranked = sorted(range(len(numbers)), key=lambda index: (-numbers[index], index))[:k]
    assert found["indices"].tolist() == [ranked]
    assert found["values"].tolist() == [[numbers[index] for index in ranked]]


@given(SCORES, st.floats(0.1, 3))
def test_softmax_is_the_share_of_each_exponential(call: Any, scores: list[float], temperature: float) -> None:
    scores = [float(np.float32(score)) for score in scores]
    found = call("softmax", {"value": floats(*scores)}, temperature=temperature)["result"]
    top = max(scores)
    powers = [math.exp((score - top) / temperature) for score in scores]
    np.testing.assert_allclose(found[0], [power / sum(powers) for power in powers], rtol=1e-4, atol=1e-7)


@given(SCORES)
def test_sigmoid_is_the_chance_of_each(call: Any, scores: list[float]) -> None:
    found = call("sigmoid", {"value": floats(*scores)})["result"]
    wanted = [1 / (1 + math.exp(-float(np.float32(score)))) for score in scores]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=1e-6)


def test_far_scores_overflow_nothing(call: Any) -> None:
    assert call("softmax", {"value": floats(1e30, -1e30)})["result"].tolist() == [[1, 0]]
    assert call("sigmoid", {"value": floats(1e30, -1e30)})["result"].tolist() == [[1, 0]]


@pytest.mark.parametrize(
    "labels", [["cat", "dog", "eel"], "cat\ndog\neel\n", "cat\ndog\neel", {"1": "dog", "0": "cat", "2": "eel"}]
)
def test_labels_come_with_their_scores_the_best_first(call: Any, labels: Any) -> None:
    found = call("softmax", {"value": floats(math.log(2), math.log(5), math.log(3)), "labels": labels})["items"]
    assert [item["label"] for item in found] == ["dog", "eel", "cat"]
    assert [item["score"] for item in found] == pytest.approx([0.5, 0.3, 0.2])


def test_without_labels_there_are_no_items(call: Any) -> None:
    assert call("sigmoid", {"value": floats(0, 1)})["items"] is None


@given(
    hnp.arrays(np.float32, (2, 4, 3), elements=st.floats(-9, 9, width=32)),
    hnp.arrays(np.int64, (2, 4), elements=st.integers(0, 1)),
)
def test_pool_counts_what_the_mask_says(call: Any, states: Any, mask: Any) -> None:
    for kind in ("mean", "max", "cls", "last"):
        found = call("pool", {"states": states, "mask": mask}, kind=kind)["result"]
        for row in range(2):
            chosen = [states[row, i] for i in range(4) if mask[row, i]]
            if not chosen:
                wanted = np.zeros(3)
            elif kind == "mean":
                wanted = sum(chosen[1:], chosen[0]) / len(chosen)
            elif kind == "max":
                wanted = [max(float(state[j]) for state in chosen) for j in range(3)]
            else:
                wanted = chosen[0] if kind == "cls" else chosen[-1]
            np.testing.assert_allclose(found[row], wanted, rtol=1e-5, atol=1e-5)


def test_pool_without_a_mask_counts_all_and_gains_the_batch_axis(call: Any) -> None:
    assert call("pool", {"states": np.array([[1.0, 3], [3, 5]], np.float32)})["result"].tolist() == [[2, 4]]


@given(hnp.arrays(np.float64, (2, 3), elements=st.floats(-9, 9)), st.sampled_from([1, 2, 3]))
def test_normalize_divides_by_the_norm(call: Any, value: Any, order: int) -> None:
    found = call("normalize", {"value": value}, order=order)["result"]
    for row in range(2):
        norm = sum(abs(x) ** order for x in value[row].tolist()) ** (1 / order)
        np.testing.assert_allclose(
            found[row], [x / max(norm, 1e-12) for x in value[row].tolist()], rtol=1e-9, atol=1e-300
        )


@pytest.mark.parametrize("kind", ["cosine", "dot", "distance"])
def test_similarity_compares_each_with_each(call: Any, kind: str) -> None:
    a, b = [[1.0, 2.0], [0.0, -1.0]], [[3.0, 4.0], [1.0, 0.0], [-2.0, 1.0]]
    found = call("similarity", {"a": np.array(a), "b": np.array(b)}, kind=kind, scale=10)["result"]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            dot = x[0] * y[0] + x[1] * y[1]
            wanted = {
                "dot": dot,
                "cosine": dot / (math.hypot(*x) * math.hypot(*y)),
                "distance": math.hypot(x[0] - y[0], x[1] - y[1]),
            }[kind]
            assert found[i, j] == pytest.approx(10 * wanted, rel=1e-5, abs=1e-5)


def test_truncate_keeps_the_first_numbers(call: Any) -> None:
    assert call("truncate", {"value": floats(1, 2, 3)}, size=2)["result"].tolist() == [[1, 2]]


def test_sample_draws_by_the_chances_of_its_context(call: Any) -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.2]]))
    draws = [
        int(call("sample", {"logits": logits}, OpContext(stage="here", item=(i,)))["result"][0, 0]) for i in range(2000)
    ]
    shares = [draws.count(index) / len(draws) for index in range(3)]
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=0.05)
    again = [
        int(call("sample", {"logits": logits}, OpContext(stage="here", item=(i,)))["result"][0, 0]) for i in range(50)
    ]
    assert again == draws[:50]


@pytest.mark.parametrize(
    ("params", "allowed"),
    [({"top_k": 2}, {0, 1}), ({"top_p": 0.5}, {0}), ({"top_p": 0.6}, {0, 1}), ({"temperature": 0}, {0})],
)
def test_sample_draws_only_what_is_allowed(call: Any, params: dict[str, Any], allowed: set[int]) -> None:
    logits = np.log(np.array([[[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]]))  # the last row counts
    drawn = {
        int(call("sample", {"logits": logits}, OpContext(item=(i,)), **params)["result"][0, 0]) for i in range(200)
    }
    assert drawn == allowed


@pytest.mark.parametrize(
    ("name", "inputs", "params"),
    [
        ("argmax", {"value": np.ones((1, 0))}, {}),
        ("argmax", {"value": np.ones((1, 2))}, {"axis": 2}),
        ("top_k", {"value": np.ones((1, 2))}, {"k": 3}),
        ("softmax", {"value": np.ones((1, 2)), "labels": ["a"]}, {}),
        ("pool", {"states": np.ones((1, 2, 3)), "mask": [[1, 1, 1]]}, {}),
        ("pool", {"states": np.ones(3)}, {}),
        ("similarity", {"a": np.ones((1, 2)), "b": np.ones((1, 3))}, {}),
        ("truncate", {"value": np.ones((1, 2))}, {"size": 3}),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, name: str, inputs: dict[str, Any], params: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="here"):
        call(name, inputs, **params)

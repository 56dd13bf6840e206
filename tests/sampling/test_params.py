from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import GenerationSpec
from genai_pipeline.problems import Location, Problems
from genai_pipeline.sampling.params import check_declared_options, check_vocabulary, resolve_options


def test_the_request_wins_over_the_package_and_the_package_over_the_built_in() -> None:
    package = {"temperature": 0.6, "top_k": 20}
    silent = resolve_options({}, package)
    assert (silent.temperature, silent.top_k, silent.top_p) == (0.6, 20, 1.0)
    assert silent.sources == {"temperature": "package", "top_k": "package"}
    assert resolve_options({"temperature": 1.0}, package).temperature == 1.0
    assert resolve_options({"temperature": 0}, package).greedy


def test_none_states_the_default_only_where_one_exists() -> None:
    assert resolve_options({"max_new_tokens": None}, {"max_new_tokens": 5}).max_new_tokens is None
    with pytest.raises(OptionError):
        resolve_options({"temperature": None})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", -1),
        ("top_k", 1.5),
        ("min_p", 2),
        ("seed", -1),
        ("seed", 2**63),
        ("max_new_tokens", 0),
        ("max_new_tokens", -3),
        ("min_new_tokens", -1),
        ("stop", ""),
        ("stop", [""]),
        ("stop", 3),
        ("stop", ["x"] * 65),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", "2"),
        ("stop_token_ids", [True]),
        ("stop_token_ids", {"a": 1}),
        ("ignore_eos", 1),
        ("n", 65),
    ],
)
def test_wrong_values_are_refused_by_name_never_clamped(name: str, value: Any) -> None:
    with pytest.raises(OptionError) as caught:
        resolve_options({name: value})
    assert caught.value.param == name
    assert name in caught.value.message


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(OptionError) as caught:
        resolve_options({"temprature": 1})
    assert "temperature" in caught.value.hint


def test_overrides_bound_what_a_request_may_set() -> None:
    overrides = {"temperature": {"minimum": 0, "maximum": 1}, "top_k": [10, 20]}
    assert resolve_options({"temperature": 1, "top_k": 10}, {"top_p": 0.9}, overrides).top_p == 0.9
    for refused in ({"temperature": 1.5}, {"top_k": 11}, {"top_p": 0.5}):
        with pytest.raises(OptionError):
            resolve_options(refused, {}, overrides)


def test_one_stop_string_is_a_list_of_one() -> None:
    assert resolve_options({"stop": "\n"}).stop == ("\n",)


def test_numbers_of_numpy_are_numbers() -> None:
    options = resolve_options(
        {"max_new_tokens": np.int64(2), "temperature": np.float32(0.5), "stop_token_ids": np.array([3, 4]).tolist()}
    )
    assert (options.max_new_tokens, options.temperature, options.stop_token_ids) == (2, 0.5, (3, 4))
    assert type(options.max_new_tokens) is int
    assert resolve_options({"stop_token_ids": [np.int32(3)]}).stop_token_ids == (3,)
    assert resolve_options({"stop_token_ids": np.int32(3)}).stop_token_ids == (3,)


def test_less_at_most_than_at_least_is_refused() -> None:
    assert resolve_options({"min_new_tokens": 3, "max_new_tokens": 3}).min_new_tokens == 3
    with pytest.raises(OptionError, match="min_new_tokens is 4, more than max_new_tokens, which is 3"):
        resolve_options({"min_new_tokens": 4, "max_new_tokens": 3})
    with pytest.raises(OptionError, match=r"more than max_new_tokens, which is 3 \(the package's default\)") as caught:
        resolve_options({"min_new_tokens": 4}, {"max_new_tokens": 3})
    assert caught.value.param == "min_new_tokens"


def test_end_tokens_are_within_the_vocabulary() -> None:
    options = resolve_options({"stop_token_ids": [7, 8]})
    check_vocabulary(options, 9)
    check_vocabulary(options, None)
    with pytest.raises(OptionError, match=r"stop_token_ids has 8, which is outside of the vocabulary: \[0, 8\)"):
        check_vocabulary(options, 8)


def test_options_of_a_package_are_checked_where_they_stand() -> None:
    problems = Problems()
    spec = GenerationSpec(
        Location("f", 9, 1, "generation"), {"top_k": 5, "stop": [""], "top_p": 3}, {"tools": True, "seed": True}
    )
    check_declared_options(spec, problems)
    check_declared_options(None, problems)
    assert [(problem.code, problem.at.path) for problem in problems.sorted()] == [
        ("value.default", "generation.defaults.stop"),
        ("value.default", "generation.defaults.top_p"),
        ("capability.missing", "generation.overrides.tools"),
    ]

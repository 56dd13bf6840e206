from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import GenerationSpec
from genai_pipeline.metadata.schema import load_schema
from genai_pipeline.problems import Location, Problems
from genai_pipeline.sampling.option_checks import CHECKS, check_option
from genai_pipeline.sampling.params import (
    GenerationOptions,
    check_declared_options,
    check_vocabulary,
    resolve_options,
)
from genai_pipeline.types import RequestOptions


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
        ("typical_p", 0),
        ("typical_p", 1.1),
        ("top_a", -0.1),
        ("top_a", 1.1),
        ("xtc_probability", -0.1),
        ("xtc_probability", 1.1),
        ("xtc_threshold", -0.1),
        ("xtc_threshold", 0.51),
        ("mirostat", 1),
        ("mirostat", True),
        ("mirostat", "2"),
        ("mirostat_tau", 0),
        ("mirostat_tau", 101),
        ("mirostat_eta", 0),
        ("mirostat_eta", 1.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", 101),
        ("frequency_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("presence_penalty", 2.1),
        ("presence_penalty", "high"),
        ("no_repeat_ngram_size", -1),
        ("no_repeat_ngram_size", 2.5),
        ("dry_multiplier", -1),
        ("dry_multiplier", 101),
        ("dry_base", 0.9),
        ("dry_base", 101),
        ("dry_allowed_length", 0),
        ("dry_range", -1),
        ("dry_sequence_breakers", [""]),
        ("dry_sequence_breakers", [-1]),
        ("dry_sequence_breakers", [1.5]),
        ("dry_sequence_breakers", {"a": 1}),
        ("dry_sequence_breakers", [True]),
        ("dry_sequence_breakers", list(range(1025))),
        ("logit_bias", [1]),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {-1: 1}),
        ("logit_bias", {1.5: 1}),
        ("logit_bias", {True: 1}),
        ("logit_bias", {"9" * 5000: 1}),
        ("logit_bias", {1: 101}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: "5"}),
        ("logit_bias", {1: 5, "1": 6}),
        ("banned_token_ids", [-1]),
        ("banned_token_ids", "1"),
        ("forced_token_ids", [0.5]),
        ("forced_token_ids", [[1]]),
        ("logprobs", 1),
        ("logprobs", None),
        ("top_logprobs", -1),
        ("top_logprobs", 21),
        ("top_logprobs", True),
        ("logprobs_of", "models"),
        ("logprobs_of", 1),
    ],
)
def test_wrong_values_are_refused_by_name_never_clamped(name: str, value: Any) -> None:
    with pytest.raises(OptionError) as caught:
        resolve_options({name: value})
    assert caught.value.param == name
    assert name in caught.value.message


def test_every_option_has_a_field_and_a_value_that_is_refused() -> None:
    named = {field.name for field in fields(GenerationOptions)} - {"sources"}
    assert named == CHECKS.keys()
    assert named <= RequestOptions.__annotations__.keys()
    for name in CHECKS:
        with pytest.raises(OptionError, match=name):
            resolve_options({name: object()})


def test_the_schema_of_packages_knows_the_same_options_and_bounds() -> None:
    properties = load_schema()["$defs"]["options"]["properties"]
    assert properties.keys() <= CHECKS.keys()  # some options are up to each request
    for name, schema in properties.items():
        good = [*schema["examples"], *(schema[key] for key in ("minimum", "maximum") if key in schema)]
        bad = [schema["minimum"] - 1] if "minimum" in schema else []
        bad += [schema["maximum"] + 1] if "maximum" in schema else []
        bad += [schema["exclusiveMinimum"]] if "exclusiveMinimum" in schema else []
        for value in (*good, *schema.get("enum", ())):
            check_option(name, value)
        for value in bad:
            with pytest.raises(OptionError):
                resolve_options({name: value})


def test_token_options_keep_what_counts() -> None:
    options = resolve_options(
        {
            "logit_bias": {"7": 1, 3: -2.5, np.int64(4): np.float32(0.5)},
            "banned_token_ids": [5, 5, 6],
            "forced_token_ids": [2, 2],
            "dry_multiplier": 0.8,
            "dry_sequence_breakers": ["\n", 9, "\n"],
        }
    )
    assert options.logit_bias == {7: 1.0, 3: -2.5, 4: 0.5}
    assert (options.banned_token_ids, options.forced_token_ids) == ((5, 6), (2, 2))
    assert options.dry_sequence_breakers == ("\n", 9)
    assert resolve_options({"dry_multiplier": 1}).dry_sequence_breakers == ("\n", ":", '"', "*")


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


def test_overrides_judge_values_after_their_own_check() -> None:
    overrides = {
        "temperature": {"minimum": 0, "maximum": 1},
        "max_new_tokens": {"maximum": 9},
        "stop": ["a", ["b", "c"]],
    }
    for given, words in (
        ({"temperature": "hot"}, "must be a number"),
        ({"max_new_tokens": None}, "allows max_new_tokens at most 9, not None"),
        ({"stop": ["a", "b"]}, "allows stop"),
    ):
        with pytest.raises(OptionError, match=words):
            resolve_options(given, {}, overrides)
    assert resolve_options({"stop": "a"}, {}, overrides).stop == ("a",)
    assert resolve_options({"stop": ["b", "c"]}, {}, overrides).stop == ("b", "c")
    listed = {"top_k": {"values": [20, 40]}, "seed": True}
    assert resolve_options({"top_k": 40, "seed": None}, {}, listed).top_k == 40
    with pytest.raises(OptionError, match="allows top_k 20, 40, not 30"):
        resolve_options({"top_k": 30}, {}, listed)


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


@pytest.mark.parametrize(
    "given",
    [
        {"stop_token_ids": [7, 8]},
        {"banned_token_ids": [7, 8]},
        {"forced_token_ids": [7, 8]},
        {"logit_bias": {"7": 1, "8": 1}},
        {"dry_sequence_breakers": ["a", 8], "dry_multiplier": 1},
    ],
)
def test_tokens_are_within_the_vocabulary(given: dict[str, Any]) -> None:
    options, name = resolve_options(given), next(iter(given))
    check_vocabulary(options, 9)
    check_vocabulary(options, None)
    with pytest.raises(OptionError, match=rf"{name} has 8, which is outside of the vocabulary: \[0, 8\)") as caught:
        check_vocabulary(options, 8)
    assert caught.value.param == name


def test_some_token_must_be_left() -> None:
    options = resolve_options({"banned_token_ids": [0, 1, 2]})
    check_vocabulary(options, 4)
    with pytest.raises(OptionError, match="every token"):
        check_vocabulary(options, 3)


@pytest.mark.parametrize(
    ("name", "value", "switch"),
    [
        ("xtc_threshold", 0.2, {"xtc_probability": 0.5}),
        ("mirostat_tau", 3, {"mirostat": 2}),
        ("mirostat_eta", 0.5, {"mirostat": 2}),
        ("dry_base", 2, {"dry_multiplier": 1}),
        ("dry_allowed_length", 3, {"dry_multiplier": 1}),
        ("dry_sequence_breakers", [], {"dry_multiplier": 1}),
        ("dry_range", 9, {"dry_multiplier": 1}),
        ("top_logprobs", 2, {"logprobs": True}),
        ("logprobs_of", "processed", {"logprobs": True}),
    ],
)
def test_an_option_without_effect_is_refused(name: str, value: Any, switch: dict[str, Any]) -> None:
    resolve_options({name: value, **switch})
    resolve_options({name: value}, switch)
    resolve_options({}, {name: value})  # ready for requests that switch it on
    with pytest.raises(OptionError, match=f"{name} has no effect without {next(iter(switch))}") as caught:
        resolve_options({name: value})
    assert caught.value.param == name
    assert resolve_options({"top_logprobs": 0}).top_logprobs == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_k", 5), ("top_p", 0.9), ("min_p", 0.1), ("typical_p", 0.5), ("top_a", 0.1), ("xtc_probability", 0.5)],
)
def test_mirostat_takes_the_place_of_every_filter(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"mirostat takes the place of {name}, which is {value}") as caught:
        resolve_options({"mirostat": 2, name: value})
    assert caught.value.param == name
    assert f"set {name} to" in caught.value.hint


@pytest.mark.parametrize("off", [{}, {"top_p": 1}])
def test_what_a_request_sets_replaces_defaults_that_it_excludes(off: dict[str, Any]) -> None:
    filters = {"top_k": 20, "top_p": 0.9, "temperature": 0.6}
    asked = resolve_options({"mirostat": 2, **off}, filters)
    assert (asked.mirostat, asked.top_k, asked.top_p, asked.temperature) == (2, 0, 1.0, 0.6)
    assert asked.sources == {"temperature": "package", "mirostat": "request", **dict.fromkeys(off, "request")}
    assert resolve_options({"mirostat": 0}, filters).top_k == 20
    aims = {"mirostat": 2, "mirostat_tau": 3}
    assert resolve_options({"top_k": 9}, aims).mirostat == 0
    assert resolve_options({"temperature": 0}, aims).mirostat == 0
    assert resolve_options({"temperature": 0.5, **off}, aims).mirostat == 2
    with pytest.raises(OptionError, match=r"mirostat needs a temperature above 0") as caught:
        resolve_options({"mirostat": 2}, {"temperature": 0})
    assert caught.value.param == "mirostat"


def test_other_combinations_that_cannot_work_are_refused() -> None:
    for given, param, words in (
        ({"mirostat": 2, "temperature": 0}, "temperature", "needs a temperature above 0"),
        ({"forced_token_ids": [4, 5], "banned_token_ids": [5]}, "forced_token_ids", "has 5, which banned_token_ids"),
        ({"logit_bias": {"5": 1}, "banned_token_ids": [5]}, "logit_bias", "has 5, which banned_token_ids"),
        ({"forced_token_ids": [4, 4], "max_new_tokens": 1}, "forced_token_ids", "has 2, more than max_new_tokens"),
    ):
        with pytest.raises(OptionError, match=words) as caught:
            resolve_options(given)
        assert caught.value.param == param


def test_defaults_of_a_package_must_go_together() -> None:
    problems = Problems()
    spec = GenerationSpec(Location("f", 9, 1, "generation"), {"top_k": 5, "mirostat": 2}, {})
    check_declared_options(spec, problems)
    (problem,) = problems.sorted()
    assert (problem.code, problem.at.path) == ("value.default", "generation.defaults.top_k")
    assert "mirostat (the package's default) takes the place of top_k" in problem.message


def test_options_of_a_package_are_checked_where_they_stand() -> None:
    problems = Problems()
    spec = GenerationSpec(
        Location("f", 9, 1, "generation"),
        {"top_k": 5, "stop": [""], "top_p": 3},
        {"beams": True, "tools": True, "seed": True},
    )
    check_declared_options(spec, problems)
    check_declared_options(None, problems)
    assert [(problem.code, problem.at.path) for problem in problems.sorted()] == [
        ("value.default", "generation.defaults.stop"),
        ("value.default", "generation.defaults.top_p"),
        ("capability.missing", "generation.overrides.beams"),
    ]

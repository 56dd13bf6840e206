"""States are found by names, sizes and nodes; what these leave open is open."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from genai_pipeline.importers.structure.graph_facts import GraphFacts
from genai_pipeline.importers.structure.states import find_states

Facts = Callable[..., GraphFacts]
F32 = "float32"


def _cache(past: str, present: str, before: str, after: str) -> tuple[dict[str, object], dict[str, object]]:
    """Two layers of keys and values; names have {0} for the layer and {1} for the part."""
    slots = [(layer, part) for layer in (0, 1) for part in ("key", "value")]
    inputs = {past.format(*slot): (F32, ["batch", 2, before, 8]) for slot in slots}
    return dict(inputs), {present.format(*slot): (F32, ["batch", 2, after, 8]) for slot in slots}


@pytest.mark.parametrize(
    ("past", "present", "patterns"),
    [
        ("past_key_values.{0}.{1}", "present.{0}.{1}", ("past_key_values.{layer}.{part}", "present.{layer}.{part}")),
        ("past_{1}_{0}", "present_{1}_{0}", ("past_{part}_{layer}", "present_{part}_{layer}")),
        ("cache.{0}.{1}_in", "cache.{0}.{1}_out", ("cache.{layer}.{part}_in", "cache.{layer}.{part}_out")),
        (
            "model2.layers.{0}.attn.{1}_cache",
            "model2.layers.{0}.attn.new_{1}_cache",
            ("model2.layers.{layer}.attn.{part}_cache", "model2.layers.{layer}.attn.new_{part}_cache"),
        ),
    ],
)
def test_caches_pair_whatever_the_export_calls_them(
    facts: Facts, past: str, present: str, patterns: tuple[str, str]
) -> None:
    inputs, outputs = _cache(past, present, "past", "total")
    (state,) = find_states(facts(inputs, outputs, writers={name: {"Concat"} for name in outputs}))
    assert state.present is not None
    assert (state.past.pattern, state.present.pattern) == patterns
    assert (state.update.value, state.update.confidence) == ("append", "certain")


@pytest.mark.parametrize(
    ("writer", "update"),
    [
        ("GroupQueryAttention", "in_place"),
        ("Concat", "append"),
        ("Attention", "append"),
        ("TensorScatter", "scatter"),
        ("ScatterND", "scatter"),
    ],
)
def test_the_node_that_writes_says_how_a_cache_is_updated(facts: Facts, writer: str, update: str) -> None:
    inputs, outputs = _cache("past.{0}.{1}", "present.{0}.{1}", "length", "length")
    (state,) = find_states(facts(inputs, outputs, writers={name: {writer} for name in outputs}))
    assert (state.update.value, state.update.confidence) == (update, "certain")


def test_a_cache_that_grows_by_its_sizes_is_appended_to_whatever_writes_it(facts: Facts) -> None:
    inputs, outputs = _cache("past.{0}.{1}", "present.{0}.{1}", "past", "total")
    (state,) = find_states(facts(inputs, outputs, writers={name: {"Transpose"} for name in outputs}))
    assert (state.update.value, state.update.confidence) == ("append", "certain")


def test_an_update_that_nothing_tells_is_open_with_its_alternatives(facts: Facts) -> None:
    inputs, outputs = _cache("past.{0}.{1}", "present.{0}.{1}", "length", "length")
    (state,) = find_states(facts(inputs, outputs, writers={name: {"Where"} for name in outputs}))
    assert state.update.confidence == "open"
    assert "Where" in state.update.question
    assert "in_place | append | scatter" in state.update.question


def test_sizes_that_do_not_depend_on_tokens_are_recurrent_state(facts: Facts) -> None:
    graph = facts(
        {"conv_state.0": (F32, ["b", 16, 3]), "h": (F32, [2, "b", 64])},
        {"new_conv_state.0": (F32, ["b", 16, 3]), "hn": (F32, [2, "b", 64])},
        writers={"new_conv_state.0": {"Slice"}, "hn": {"GRU"}},
    )
    found = {state.past.pattern: state.update.value for state in find_states(graph)}
    assert found == {"conv_state.{layer}": "replace", "h": "replace"}


def test_an_input_of_the_size_of_an_output_is_asked_about(facts: Facts) -> None:
    (state,) = find_states(facts({"x": (F32, ["b", 64])}, {"y": (F32, ["b", 64])}))
    assert state.pairing.confidence == "likely"
    assert "an input" in state.pairing.question


def test_rows_that_come_in_and_go_out_are_no_state(facts: Facts) -> None:
    graph = facts({"inputs_embeds": (F32, ["b", "s", 64])}, {"hidden_states": (F32, ["b", "s", 64])})
    assert find_states(graph) == ()


def test_a_cache_of_cross_attention_has_the_length_of_what_is_given(facts: Facts) -> None:
    own = _cache("past.{0}.decoder.{1}", "present.{0}.decoder.{1}", "past", "total")
    other = _cache("past.{0}.encoder.{1}", "present.{0}.encoder.{1}", "source", "states")
    graph = facts(
        {**own[0], **other[0], "encoder_hidden_states": (F32, ["batch", "states", 32])},
        {**own[1], **other[1]},
        writers={name: {"Concat"} for name in own[1]},
    )
    found = {state.past.pattern: state.update.value for state in find_states(graph)}
    assert found == {"past.{layer}.decoder.{part}": "append", "past.{layer}.encoder.{part}": "fixed"}


def test_the_two_sides_have_types_of_their_own(facts: Facts) -> None:
    parts = {"key": "float32", "value": "float16"}
    graph = facts(
        {f"past.0.{part}": (dtype, ["b", 2, "p", 8]) for part, dtype in parts.items()},
        {f"present.0.{part}": (dtype, ["b", 2, "t", 8]) for part, dtype in parts.items()},
    )
    (state,) = find_states(graph)
    assert state.past.dtypes == ("float32", "float16")


def test_a_buffer_of_rows_with_all_heads_side_by_side_is_scattered_into(facts: Facts) -> None:
    past = {f"key_cache.{layer}": (F32, ["b", 64, 32]) for layer in range(2)}
    present = {f"updated_key_cache.{layer}": (F32, ["b", 64, 32]) for layer in range(2)}
    (state,) = find_states(facts(past, present, writers={name: {"TensorScatter"} for name in present}))
    assert (state.update.value, state.capacity, state.flat) == ("scatter", 64, 32)


def test_states_of_linear_attention_lie_beside_caches_of_the_same_prefix(facts: Facts) -> None:
    sizes = {"0.recurrent_state": ["b", 4, 16, 16], "1.key": ["b", 2, "past", 16], "1.value": ["b", 2, "past", 16]}
    writers = {"present.0.recurrent_state": {"LinearAttention"}, "present.1.key": {"Attention"}}
    found = find_states(
        facts(
            {f"past_key_values.{name}": (F32, size) for name, size in sizes.items()},
            {f"present.{name}": (F32, size) for name, size in sizes.items()},
            writers={**writers, "present.1.value": {"Attention"}},
        )
    )
    assert [(state.past.pattern, state.update.value) for state in found] == [
        ("past_key_values.{layer}.recurrent_state", "replace"),
        ("past_key_values.{layer}.{part}", "append"),
    ]

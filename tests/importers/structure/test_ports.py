"""What ports mean: by the nodes that read them, by usual names, by what is left; everything else is a question."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from genai_pipeline.importers.structure.graph_facts import GraphFacts
from genai_pipeline.importers.structure.ports import input_meanings, logits_of

Facts = Callable[..., GraphFacts]
F32, I64, I32 = "float32", "int64", "int32"
LOGITS = {"logits": (F32, ["b", "s", 100])}


def test_nodes_say_what_their_inputs_mean_whatever_they_are_called(facts: Facts) -> None:
    graph = facts(
        {"a": (I64, ["b", "s"]), "c": (I32, ["b"]), "d": (I32, [])},
        LOGITS,
        readers={"c": {("GroupQueryAttention", 5)}, "d": {("GroupQueryAttention", 6)}},
    )
    found = {name: finding.value for name, finding in input_meanings(graph, ()).items()}
    assert found == {"a": "tokens", "c": "last_index", "d": "longest"}
    assert all(finding.certain for finding in input_meanings(graph, ()).values())


def test_a_mask_without_a_name_is_longer_than_the_tokens(facts: Facts) -> None:
    graph = facts({"ids": (I64, ["b", "s"]), "m": (I64, ["b", "total"])}, LOGITS)
    assert input_meanings(graph, ())["m"].value == "mask"


def test_the_switch_of_a_merged_decoder_is_known_by_name_and_type(facts: Facts) -> None:
    ports = {"input_ids": (I64, ["b", "s"]), "use_cache_branch": ("bool", [1])}
    assert input_meanings(facts(ports, LOGITS), ())["use_cache_branch"].value == "later"


def test_a_usual_name_with_another_rank_is_open(facts: Facts) -> None:
    graph = facts({"input_ids": (I64, ["b", "s"]), "position_ids": (I64, [3, "b", "s"])}, LOGITS)
    assert not input_meanings(graph, ())["position_ids"].certain


def test_two_matrices_of_integers_without_names_are_open_with_alternatives(facts: Facts) -> None:
    graph = facts({"x": (I64, ["b", "s"]), "y": (I64, ["b", "s"])}, LOGITS)
    for finding in input_meanings(graph, ()).values():
        assert finding.confidence == "open"
        assert "tokens" in finding.alternatives
        assert "mask" in finding.alternatives


def test_two_ports_with_names_for_the_same_are_open(facts: Facts) -> None:
    graph = facts({"input_ids": (I64, ["b", "s"]), "tokens": (I64, ["b", "s"])}, LOGITS)
    assert not any(finding.certain for finding in input_meanings(graph, ()).values())


@pytest.mark.parametrize(("size", "found"), [(100, "scores_out"), (128, "scores_out"), (99, None), (5000, None)])
def test_logits_without_a_name_are_as_wide_as_the_vocabulary(facts: Facts, size: int, found: str | None) -> None:
    graph = facts({"x": (I64, ["b", "s"])}, {"scores_out": (F32, ["b", "s", size]), "rows": (F32, ["b", "s", 16])})
    finding = logits_of(graph, (), 100)
    assert (finding.value if finding else None) == found


def test_two_outputs_as_wide_as_the_vocabulary_are_open(facts: Facts) -> None:
    graph = facts({"x": (I64, ["b", "s"])}, {"one": (F32, ["b", "s", 100]), "two": (F32, ["b", "s", 100])})
    finding = logits_of(graph, (), 100)
    assert finding is not None
    assert finding.alternatives == ("one", "two")

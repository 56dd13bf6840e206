"""Inputs that a graph declares and no node reads: told in the facts, and given an array without elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.importers.structure.graph_facts import read_facts
from genai_pipeline.importers.structure.parts import read_part
from genai_pipeline.importers.structure.states import find_states
from genai_pipeline.importers.structure.unread import unread_lines, unread_stages, unread_values
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.packages import write_graph

Facts = Callable[..., Any]
F32, F16, I64 = "float32", "float16", "int64"
CROSS = {f"past.0.cross.{part}": (F32, ["batch", 2, "source", 8]) for part in ("key", "value")}
TOKENS = {"input_ids": (I64, ["batch", "sequence"])}
LOGITS = {"logits": (F32, ["batch", "sequence", 99])}


def _graph(path: Path, *, reads: bool = True, gives: bool = False) -> Path:
    """A graph of two inputs, of which it reads one or none, and gives the other back or not."""
    graph = GraphBuilder("graph")
    taken, spare = graph.input("taken", F32, ["b", 4]), graph.input("spare", F32, ["b", 4])
    made = graph.op("Neg", taken) if reads else graph.op("Expand", graph.const(0.0), [1, 4])
    graph.output("made", made, F32, ["b", 4])
    if gives:
        graph.output("given", graph.op("Identity", spare), F32, ["b", 4])
    write_graph(path / "graph.onnx", graph)
    return path


@pytest.mark.parametrize(
    ("options", "unread"),
    [({}, {"spare"}), ({"gives": True}, set()), ({"reads": False}, set())],
    ids=["read", "given back", "a graph that reads nothing says nothing"],
)
def test_a_graph_tells_which_inputs_it_reads(tmp_path: Path, options: dict[str, bool], unread: set[str]) -> None:
    assert read_facts(_graph(tmp_path, **options), "graph.onnx").unread == unread


def test_a_cache_that_nothing_reads_or_writes_is_no_state(facts: Facts) -> None:
    graph = facts({**TOKENS, **CROSS}, LOGITS)
    assert [state.update.value for state in find_states(graph)] == ["fixed"]
    assert find_states(replace(graph, unread=frozenset(CROSS))) == ()


def test_each_type_and_size_has_one_value_without_elements(facts: Facts) -> None:
    other = {"extra": (F16, ["batch", 3, "rest"])}
    graph = replace(facts({**TOKENS, **CROSS, **other}, LOGITS), unread=frozenset({*CROSS, *other}))
    part = read_part(graph, None)
    assert part.kind == "decoder"
    assert unread_values(part) == {**dict.fromkeys(CROSS, "unread"), "extra": "unread_1"}
    assert [stage["with"] for stage in unread_stages(part)] == [
        {"shape": [1, 2, 0, 8], "dtype": F32},
        {"shape": [1, 3, 0], "dtype": F16},
    ]
    assert [line.split(",")[0] for line in unread_lines(part)] == ["  - {id: unread", "  - {id: unread_1"]


def test_a_usual_name_keeps_its_meaning(facts: Facts) -> None:
    ports = {**TOKENS, "position_ids": (I64, ["batch", "sequence"])}
    part = read_part(replace(facts(ports, LOGITS), unread=frozenset({"position_ids"})), None)
    assert part.port_of("positions") == "position_ids"
    assert unread_values(part) == {}

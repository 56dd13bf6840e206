"""Stages in scopes of their own: groups over lists, conditions, operations, and loops that iterate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import RequestError, RequestTimeoutError
from genai_pipeline.testing import write_package
from genai_pipeline.testing.builder import GraphBuilder

ROWS = [np.arange(4), np.arange(3, 9), np.array([7]), np.arange(4) + 1]


def double() -> GraphBuilder:
    """``x`` [b, s] -> ``y`` [b, s] = 2 * x + 1, ``big`` [b] = whether the first one is over 40."""
    b = GraphBuilder("double")
    x = b.input("x", "int64", ["b", "s"])
    y = b.op("Add", b.op("Mul", x, b.const(np.int64(2))), b.const(np.int64(1)))
    b.output("y", y, "int64", ["b", "s"])
    first = b.op("Gather", y, b.const(np.int64(0)), axis=1)
    b.output("big", b.op("Greater", first, b.const(np.int64(40))), "bool", ["b"])
    return b


@pytest.fixture
def open_stages(tmp_path: Path) -> Iterator[Callable[..., gp.Pipeline]]:
    """Opens a package of stages around the component ``double``, with the list ``data.rows``."""
    pipes: list[gp.Pipeline] = []

    def open_(stages: list[dict[str, Any]], outputs: dict[str, str], *, parameters: Any = None) -> gp.Pipeline:
        def edit(metadata: dict[str, Any]) -> None:
            metadata["stages"].clear()
            metadata["outputs"].clear()
            if not any("decoder" in str(stage) for stage in stages):
                metadata["components"].clear()
                del metadata["limits"]
            metadata["components"]["double"] = {"model": "double.onnx"}
            metadata["data"] = {"rows": {"files": [f"row{i}.npy" for i in range(len(ROWS))]}}
            metadata["inputs"]["parameters"] = parameters or {"unused": {"type": "integer", "default": 0}}
            metadata["stages"] += stages
            metadata["outputs"] |= {name: {"modality": "tensor", "value": value} for name, value in outputs.items()}

        package = write_package(tmp_path / f"p{len(pipes)}", "kv", edit=edit)
        double().save(package.path / "double.onnx")
        for i, row in enumerate(ROWS):
            np.save(package.path / f"row{i}.npy", row.astype(np.int64))
        pipes.append(gp.load(package.path))
        return pipes[-1]

    yield open_
    for pipe in pipes:
        pipe.close()


def test_a_run_over_a_list_gives_a_list_in_its_order(open_stages: Any) -> None:
    stage = {"id": "each", "run": "double", "for_each": "data.rows", "inputs": {"x": "data.rows"}}
    pipe = open_stages([stage], {"out": "each.y"})
    outs = pipe.run({"prompt": "a"})["out"]
    assert [out.tolist() for out in outs] == [[(2 * row + 1).tolist()] for row in ROWS]
    assert pipe.stats()["rows"]["aside"] == {"1": 2, "2": 1}  # the two rows of four share a run


def test_a_group_runs_its_stages_per_item_and_its_values_are_lists(open_stages: Any) -> None:
    body = [
        {"run": "double", "inputs": {"x": "data.rows"}, "outputs": {"y": "once"}},
        {
            "op": "affine",
            "with": {"scale": "parameters.by"},
            "inputs": {"value": "once"},
            "outputs": {"result": "more"},
        },
        {"id": "again", "run": "double", "inputs": {"x": "once"}, "outputs": {"y": "twice"}},
    ]
    stages = [{"id": "each", "for_each": "data.rows", "body": body}]
    parameters = {"by": {"type": "integer", "default": 3}}
    pipe = open_stages(stages, {"twice": "each.twice", "more": "each.more"}, parameters=parameters)
    out = pipe.run({"prompt": "a"}, parameters={"by": 5})
    np.testing.assert_equal(out, pipe.run({"prompt": "a", "by": 5}))
    assert [one.tolist() for one in out["twice"]] == [[(4 * row + 3).tolist()] for row in ROWS]
    assert [one.tolist() for one in out["more"]] == [[(5 * (2 * row + 1)).tolist()] for row in ROWS]


def test_groups_nest_and_lists_keep_their_nesting(open_stages: Any) -> None:
    inner = {"id": "inner", "run": "double", "for_each": "data.rows", "inputs": {"x": "data.rows"}}
    stages = [
        {"id": "first", "run": "double", "for_each": "data.rows", "inputs": {"x": "data.rows"}},
        {"id": "outer", "for_each": "first.y", "body": [{**inner, "outputs": {"y": "row"}}]},
    ]
    out = open_stages(stages, {"out": "outer.row"}).run({"prompt": "a"})["out"]
    assert [[one.tolist() for one in rows] for rows in out] == [[[(2 * r + 1).tolist()] for r in ROWS]] * len(ROWS)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_stage_whose_condition_is_false_is_skipped_with_those_that_need_it(open_stages: Any, chosen: bool) -> None:
    stages = [
        {"id": "maybe", "run": "double", "when": "parameters.on", "inputs": {"x": "prompt.tokens"}},
        {"id": "after", "run": "double", "inputs": {"x": "maybe.y"}},
        {"id": "other", "run": "double", "inputs": {"x": "prompt.tokens"}},
        {"id": "either", "op": "coalesce", "inputs": {"values": ["after.y", "other.y"]}},
    ]
    outputs = {"after": "after.y", "either": "either.result"}
    parameters = {"on": {"type": "boolean", "default": False}}
    pipe = open_stages(stages, outputs, parameters=parameters)
    ids = np.array(pipe.tokenize("ab"))
    out = pipe.run({"prompt": "ab", "on": chosen})
    if chosen:
        assert out["after"].tolist() == out["either"].tolist() == [(4 * ids + 3).tolist()]
    else:
        assert out["after"] is None
        assert out["either"].tolist() == [(2 * ids + 1).tolist()]


def test_an_iterate_loop_carries_and_collects(open_stages: Any) -> None:
    loop = {
        "id": "grow",
        "loop": "iterate",
        "count": "parameters.steps",
        "carry": {"x": {"initial": "prompt.tokens", "next": "y"}},
        "body": [{"run": "double", "inputs": {"x": "loop.x"}, "outputs": {"y": "y"}}],
        "collect": {"all": {"value": "y", "axis": 1}, "steps": {"value": "y"}},
    }
    parameters = {"steps": {"type": "integer", "default": 3}}
    pipe = open_stages([loop], {"x": "grow.x", "all": "grow.all", "steps": "grow.steps"}, parameters=parameters)
    ids = np.array(pipe.tokenize("ab"))
    for steps in (1, 5):
        out = pipe.run({"prompt": "ab", "steps": steps})
        values = [ids]
        for _ in range(steps):
            values.append(2 * values[-1] + 1)
        assert out["x"].tolist() == [values[-1].tolist()]
        assert out["all"].tolist() == [np.concatenate(values[1:]).tolist()]
        assert [step.tolist() for step in out["steps"]] == [[value.tolist()] for value in values[1:]]
    with pytest.raises(RequestError, match="no step to be joined"):
        pipe.run({"prompt": "ab", "steps": 0})


@pytest.mark.parametrize(("chunk", "before", "after"), [(3, 0, 0), (2, 1, 0), (4, 2, 3), (50, 5, 5)])
def test_a_walk_over_an_axis_equals_the_whole(open_stages: Any, chunk: int, before: int, after: int) -> None:
    loop = {
        "id": "walk",
        "loop": "iterate",
        "over": {"value": "prompt.tokens", "axis": 0, "chunk": chunk, "before": before, "after": after},
        "body": [{"run": "double", "inputs": {"x": "loop.item"}, "outputs": {"y": "y"}}],
        "collect": {"all": {"value": "y", "axis": -1, "scale": 1}},
    }
    pipe = open_stages([loop], {"all": "walk.all"})
    ids = np.array(pipe.tokenize("abcdefghijk"))
    assert pipe.run({"prompt": "abcdefghijk"})["all"].tolist() == [(2 * ids + 1).tolist()]


def test_a_loop_ends_when_a_value_of_its_body_says_so(open_stages: Any) -> None:
    loop = {
        "id": "grow",
        "loop": "iterate",
        "until": "far",
        "max": "parameters.most",
        "carry": {"x": {"initial": "prompt.tokens", "next": "y"}},
        "body": [{"run": "double", "inputs": {"x": "loop.x"}, "outputs": {"y": "y", "big": "far"}}],
    }
    pipe = open_stages([loop], {"x": "grow.x"}, parameters={"most": {"type": "integer", "default": 100}})
    ids = np.array(pipe.tokenize("a"))
    wanted = 2 * ids + 1
    while wanted[0] <= 40:
        wanted = 2 * wanted + 1
    assert pipe.run({"prompt": "a"})["x"].tolist() == [wanted.tolist()]
    assert pipe.run({"prompt": "a", "most": 1})["x"].tolist() == [(2 * ids + 1).tolist()]


def test_a_decode_loop_per_item(open_stages: Any, open_tiny: Any) -> None:
    inputs = {"input_ids": "loop.tokens", "attention_mask": "loop.attention_mask"}
    decoder = {"run": "decoder", "inputs": inputs, "outputs": {"logits": "logits"}}
    say = {"id": "say", "loop": "decode", "prompt": "data.rows", "body": [decoder], "logits": "logits"}
    pipe = open_stages([{"id": "each", "for_each": "data.rows", "body": [say]}], {"tokens": "each.say.tokens"})
    _, package = open_tiny("kv")
    wanted = [package.twin.expected(row.tolist(), 6) for row in ROWS]
    streams = [pipe.stream("a", temperature=0, max_new_tokens=6, ignore_eos=True) for _ in range(3)]
    for stream in streams:
        (last,) = list(stream)  # what a loop gives that is no output of its own is not streamed
        assert last.finish_reason == "stop"
        assert [list(tokens) for tokens in last.outputs["tokens"]] == wanted
        assert last.usage.completion_tokens == 6 * len(ROWS)


def test_several_choices_need_a_loop_of_the_request(open_stages: Any) -> None:
    inputs = {"input_ids": "loop.tokens", "attention_mask": "loop.attention_mask"}
    decoder = {"run": "decoder", "inputs": inputs, "outputs": {"logits": "logits"}}
    say = {"id": "say", "loop": "decode", "prompt": "data.rows", "body": [decoder], "logits": "logits"}
    pipe = open_stages([{"id": "each", "for_each": "data.rows", "body": [say]}], {"tokens": "each.say.tokens"})
    with pytest.raises(RequestError, match="several choices"):
        pipe.generate("a", n=2)


def test_a_failing_item_ends_its_request_alone(open_stages: Any) -> None:
    body = [
        {"run": "double", "inputs": {"x": "data.rows"}, "outputs": {"y": "once"}},
        {"op": "take", "with": {"axis": 1}, "inputs": {"value": "once", "index": "parameters.at"}},
    ]
    stages = [{"id": "each", "for_each": "data.rows", "body": body}]
    parameters = {"at": {"type": "integer", "default": 0}}
    pipe = open_stages(stages, {"out": "each.take.result"}, parameters=parameters)
    streams = [pipe.stream_run({"prompt": "a", "at": at}) for at in (0, 3, 0)]  # one row has a single number
    ends = [list(stream)[-1] for stream in streams]
    assert [end.finish_reason for end in ends] == ["stop", "error", "stop"]
    assert isinstance(ends[1].error, RequestError)
    assert [len(end.outputs["out"]) for end in ends[::2]] == [len(ROWS), len(ROWS)]


def test_a_request_can_be_cancelled_in_the_middle_of_a_loop(open_stages: Any) -> None:
    loop = {
        "id": "walk",
        "loop": "iterate",
        "count": 1_000_000,
        "body": [{"run": "double", "inputs": {"x": "prompt.tokens"}, "outputs": {"y": "y"}}],
        "collect": {"last": {"value": "y", "axis": 0}},
    }
    pipe = open_stages([loop], {"out": "walk.last"})
    stream = pipe.stream_run({"prompt": "a"})
    while pipe.stats()["runs"].get("aside", 0) < 3:
        pass
    stream.cancel()
    assert list(stream)[-1].finish_reason == "cancelled"
    assert pipe.stats()["requests"]["cancelled"] == 1
    other = pipe.stream_run({"prompt": "a"}, timeout=0.2)
    assert isinstance(list(other)[-1].error, RequestTimeoutError)


def test_items_whose_condition_is_false_are_none(open_stages: Any) -> None:
    body = [{"run": "double", "when": "data.rows.length > parameters.least", "inputs": {"x": "data.rows"}}]
    group = {"id": "each", "for_each": "data.rows", "body": body}
    pipe = open_stages([group], {"out": "each.double.y"}, parameters={"least": {"type": "integer", "default": 3}})
    given = [None if one is None else one.tolist() for one in pipe.run({"prompt": "a"})["out"]]
    assert given == [[(2 * row + 1).tolist()] if len(row) > 3 else None for row in ROWS]


def test_steps_that_do_not_fit_together_end_their_request_alone(open_stages: Any) -> None:
    loop = {
        "id": "walk",
        "loop": "iterate",
        "over": {"value": "data.rows[1]", "axis": 0, "chunk": 4},
        "body": [{"run": "double", "inputs": {"x": "loop.item"}, "outputs": {"y": "y"}}],
        "collect": {"all": {"value": "y", "axis": 0}},
    }
    pipe = open_stages([loop], {"out": "walk.all"})
    for _ in range(2):
        with pytest.raises(RequestError, match="cannot be joined on axis 0"):
            pipe.run({"prompt": "a"})


def test_a_loop_without_graphs_lets_others_go_first(open_stages: Any) -> None:
    loop = {
        "id": "spin",
        "loop": "iterate",
        "count": "parameters.steps",
        "carry": {"x": {"initial": "prompt.tokens", "next": "y"}},
        "body": [{"op": "affine", "with": {"scale": 1}, "inputs": {"value": "loop.x"}, "outputs": {"result": "y"}}],
    }
    parameters = {"steps": {"type": "integer", "default": 1}}
    pipe = open_stages([loop], {"out": "spin.x"}, parameters=parameters)
    with pipe.stream_run({"prompt": "a", "steps": 1_000_000_000}) as long:
        assert np.array(pipe.run({"prompt": "a", "steps": 1000})["out"]).ravel().tolist() == list(pipe.tokenize("a"))
        long.cancel()
        assert list(long)[-1].finish_reason == "cancelled"

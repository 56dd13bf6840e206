"""Runs that nobody waits for end at once. The graph here would run for a hundred years: that a test ends proves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import genai_pipeline as gp
from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.engine.interruption import CurrentRun
from genai_pipeline.errors import EngineClosedError, GraphRunError, RequestTimeoutError
from genai_pipeline.testing import TinyPackage, write_package

ASK: dict[str, Any] = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
Open = Callable[[str], tuple[gp.Pipeline, TinyPackage, int]]


def write_endless(path: Path, trigger: int) -> None:
    """``same`` = ``ids``, found by 2**62 rounds of a loop where ``trigger`` is the largest id, at once elsewhere."""
    text = f"""<ir_version: 9, opset_import: ["" : 20]>
    endless (int64[b, s] ids) => (int64[b, s] same) {{
      trigger = Constant <value_int = {trigger}> ()
      rounds = Constant <value_int = {2**62}> ()
      none = Constant <value_int = 0> ()
      largest = ReduceMax <keepdims = 0> (ids)
      found = Equal (largest, trigger)
      count = Where (found, rounds, none)
      on = Constant <value = bool {{1}}> ()
      same = Loop (count, on, ids) <
        body = round (int64 i, bool go, int64[b, s] value) => (bool again, int64[b, s] negative) {{
          again = Identity (go)
          negative = Neg (value)
        }}
      >
    }}"""
    onnx.save(onnx.parser.parse_model(text), path)


def beside(metadata: dict[str, Any]) -> None:
    """The graph as a stage of its own, which runs in the side lane."""
    metadata["stages"].append({"id": "spin", "run": "endless", "inputs": {"ids": "prompt.tokens"}})
    metadata["outputs"]["same"] = {"modality": "tensor", "value": "spin.same"}


def inside(metadata: dict[str, Any]) -> None:
    """The graph in the body of the loop, before the decoder."""
    body = metadata["stages"][0]["body"]
    body[0]["inputs"] = {**body[0].get("inputs", {}), "input_ids": "same"}
    body.insert(0, {"run": "endless", "inputs": {"ids": "loop.tokens"}, "outputs": {"same": "same"}})


@pytest.fixture
def open_endless(tmp_path: Path) -> Iterator[Open]:
    """``open_endless(place)``: a pipeline, its package, and the token at which a run is endless."""
    pipes: list[gp.Pipeline] = []

    def open_(place: str) -> tuple[gp.Pipeline, TinyPackage, int]:
        def edit(metadata: dict[str, Any]) -> None:
            metadata["components"]["endless"] = {"model": "endless.onnx"}
            {"beside": beside, "inside": inside}[place](metadata)

        package = write_package(tmp_path, update="append", edit=edit)
        trigger = len(package.vocabulary.tokens) - 1
        write_endless(tmp_path / "endless.onnx", trigger)
        pipes.append(gp.load(package.path, max_batch=4))
        return pipes[-1], package, trigger

    yield open_
    for pipe in pipes:
        pipe.close()


def current(pipe: gp.Pipeline, place: str) -> CurrentRun:
    engine = pipe._assembly.engine
    return engine._side_lane.current if place == "beside" else engine._stepper.current


def wait_for_run(pipe: gp.Pipeline, place: str, requests: int = 1) -> None:
    while len(current(pipe, place)._requests) != requests:
        pass


def answers(pipe: gp.Pipeline, package: TinyPackage, text: str) -> None:
    prompt = package.vocabulary.encode(text)
    assert list(pipe.generate(tokens=prompt, **ASK).tokens) == package.expected(prompt, 6)


@pytest.mark.parametrize("place", ["beside", "inside"])
def test_the_run_of_a_request_that_is_cancelled_ends(open_endless: Open, place: str) -> None:
    pipe, package, trigger = open_endless(place)
    for _ in range(2):
        stream = pipe.stream(tokens=[trigger], **ASK)
        wait_for_run(pipe, place)
        stream.cancel()
        assert [event.finish_reason for event in stream][-1] == "cancelled"
        answers(pipe, package, "abc")
    stats = pipe.stats()
    assert (stats["requests"]["cancelled"], stats["requests"]["failed"]) == (2, 0)
    assert stats["runs"].get("failed", 0) == 0


@pytest.mark.parametrize("place", ["beside", "inside"])
def test_closing_ends_the_run(open_endless: Open, place: str) -> None:
    pipe, _, trigger = open_endless(place)
    stream = pipe.stream(tokens=[trigger], **ASK)
    wait_for_run(pipe, place)
    pipe.close()
    last = list(stream)[-1]
    assert last.finish_reason == "error"
    assert isinstance(last.error, EngineClosedError)
    assert last.error.message == "the pipeline is closed"


def test_a_run_that_others_share_goes_on(open_endless: Open) -> None:
    pipe, package, trigger = open_endless("beside")
    first = pipe.stream(tokens=[trigger], **ASK)
    wait_for_run(pipe, "beside")
    second, third = (pipe.stream(tokens=[trigger, 6 + index], **ASK) for index in range(2))
    first.cancel()
    wait_for_run(pipe, "beside", requests=2)
    second.cancel()
    assert list(second)[-1].finish_reason == "cancelled"  # at once, though its run goes on for the third
    assert len(current(pipe, "beside")._requests) == 2
    assert not current(pipe, "beside")._given_up
    third.cancel()
    assert list(third)[-1].finish_reason == "cancelled"
    answers(pipe, package, "abc")


def test_a_request_whose_time_runs_out_frees_the_side_lane(open_endless: Open) -> None:
    pipe, package, trigger = open_endless("beside")
    with pytest.raises(RequestTimeoutError):
        pipe.generate(tokens=[trigger], timeout=0.2, **ASK)
    answers(pipe, package, "abc")


def test_others_of_the_loop_go_on_with_their_answers(open_endless: Open) -> None:
    pipe, package, trigger = open_endless("inside")
    prompts = [package.vocabulary.encode(text) for text in ("abc", "bcd")]
    others = [pipe.stream(tokens=prompt, **{**ASK, "max_new_tokens": 40}) for prompt in prompts]
    heads = [next(other).token for other in others]
    stream = pipe.stream(tokens=[trigger], **ASK)
    run = current(pipe, "inside")
    while not any(trigger in sequence.tokens for request in run._requests for sequence in request.started()):
        pass
    stream.close()
    for prompt, head, other in zip(prompts, heads, others, strict=True):
        rest = [event.token for event in other if event.token is not None]
        assert [head, *rest] == package.expected(prompt, 40)


def test_a_binding_refuses_runs_from_cancel_to_resume(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_endless(path, trigger=9)
    graph = OrtBackend().load(LoadRequest("part", str(path), str(tmp_path)))
    binding, ids = graph.binding(), np.array([[1, 2]])
    binding.bind_input("ids", Buffer.of(ids))
    binding.bind_output("same", None)
    for _ in range(2):
        binding.run()
        np.testing.assert_array_equal(binding.output("same"), ids)
        binding.cancel()
        for _ in range(2):
            with pytest.raises(GraphRunError, match="terminate"):
                binding.run()
        binding.resume()
    graph.close()

"""Components outside loops: they run in the side lane, share runs across requests, and fail alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.engine.job import JobStage
from genai_pipeline.errors import EngineFailedError, GraphRunError, PromptTooLongError, RequestError
from genai_pipeline.errors import RequestTimeoutError as TimedOut
from genai_pipeline.testing import write_package
from genai_pipeline.testing.builder import GraphBuilder

TEXTS = ["abc", "abd", "efghijk", "l" * 17, "mno", "pq", "rst", "l" * 17]
KNOWN = 100  # token ids that the graph of values has an entry for


def scores() -> GraphBuilder:
    """``ids`` and ``mask`` [b, s], ``shift`` [] -> ``each`` [b, s] = 3 * id + shift, ``total`` [b] under the mask."""
    b = GraphBuilder("scores")
    ids, mask = b.input("ids", "int64", ["b", "s"]), b.input("mask", "int64", ["b", "s"])
    shift = b.input("shift", "int64", [])
    table = b.const(3 * np.arange(KNOWN, dtype=np.int64))  # an id beyond it is a fault of the request
    each = b.op("Add", b.op("Gather", table, ids), shift)
    b.output("each", each, "int64", ["b", "s"])
    b.output("total", b.op("ReduceSum", b.op("Mul", each, mask), [1], keepdims=0), "int64", ["b"])
    return b


def stage(source: str, *, id: str = "score", **component: Any) -> Callable[[dict[str, Any]], None]:
    """Adds the graph of ``scores`` over a list of tokens, with its outputs as outputs of the package."""

    def edit(metadata: dict[str, Any]) -> None:
        parameters = {"shift": {"type": "integer", "default": 0}}
        metadata["inputs"] |= {"parameters": parameters}
        metadata["components"]["scores"] = {"model": "scores.onnx", **component}
        inputs = {"ids": source, "mask": source, "shift": "parameters.shift"}
        metadata["stages"].append({"id": id, "run": "scores", "inputs": inputs})
        metadata["outputs"] |= {
            f"{id}_each": {"modality": "tensor", "value": f"{id}.each"},
            f"{id}_total": {"modality": "tensor", "value": f"{id}.total"},
        }

    return edit


@pytest.fixture
def open_scores(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    pipes: list[gp.Pipeline] = []

    def open_(*edits: Callable[[dict[str, Any]], None], loop: bool = True, **load: Any) -> Any:
        def edit(metadata: dict[str, Any]) -> None:
            if not loop:
                metadata["stages"].clear()
                metadata["components"].clear()
                metadata["outputs"].clear()
                del metadata["limits"]
            for change in edits:
                change(metadata)

        package = write_package(tmp_path / f"p{len(pipes)}", "kv", edit=edit)
        scores().save(package.path / "scores.onnx")
        pipes.append(gp.load(package.path, **load))
        return pipes[-1], package

    yield open_
    for pipe in pipes:
        pipe.close()


class Held:
    """A side lane that is held up: the sizes of its runs, in order."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.busy = threading.Event()

    def submit(self, pipe: gp.Pipeline, prompts: Any, **rest: Any) -> list[Any]:
        """Streams of requests: the first has the lane for itself, the others wait."""
        streams = []
        for prompt in prompts:
            streams.append(pipe.stream(tokens=prompt, **rest))
            assert self.busy.wait(10)
        return streams


@contextmanager
def lane_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """While this lasts, runs of the side lane do not end."""
    held = Held()
    go_on = threading.Event()
    run = JobStage.run

    def waiting(self: JobStage, jobs: Any) -> Any:
        held.sizes.append(len(jobs))
        held.busy.set()
        go_on.wait()
        return run(self, jobs)

    monkeypatch.setattr(JobStage, "run", waiting)
    try:
        yield held
    finally:
        go_on.set()


def total(ids: Any, shift: int = 0) -> int:
    """What ``scores`` gives where the mask is the ids themselves."""
    return sum((3 * id + shift) * id for id in ids)


def test_an_encoder_runs_once_before_the_loop_that_reads_it(open_tiny: Any) -> None:
    def heard(metadata: dict[str, Any]) -> None:
        metadata["stages"][1]["prompt"] = "prompt.tokens"

    pipe, package = open_tiny("cross", captured=True, edit=heard)
    prompts = [list(package.vocabulary.encode(text)) for text in TEXTS]
    ask = {"temperature": 0, "max_new_tokens": 9, "ignore_eos": True}
    streams = [pipe.stream(tokens=prompt, **ask) for prompt in prompts]
    for stream, prompt in zip(streams, prompts, strict=True):
        twin = replace(package.twin, start=tuple(prompt))
        assert [event.token for event in stream if event.token is not None] == twin.expected(prompt, 9)
    assert pipe.stats()["runs"]["aside"] <= len(TEXTS)
    rows = pipe.stats()["rows"]["aside"]
    assert sum(int(size) * count for size, count in rows.items()) == len(TEXTS)


def test_a_package_without_loops(open_scores: Any) -> None:
    pipe, package = open_scores(stage("prompt.tokens"), loop=False)
    for text in TEXTS:
        ids = package.vocabulary.encode(text)
        outputs = pipe.generate(tokens=ids, parameters={"shift": 2}).outputs
        assert outputs["score_each"].tolist() == [[3 * id + 2 for id in ids]]
        assert outputs["score_total"].tolist() == [total(ids, 2)]
    result = pipe.generate(tokens=[1, 2])
    assert (result.text, result.finish_reason, result.usage.prompt_tokens) == ("", "stop", 0)
    assert pipe.stats()["requests"]["admitted"] == len(TEXTS) + 1


def test_stages_before_beside_and_after_a_loop(open_scores: Any) -> None:
    edits = stage("prompt.tokens", id="before"), stage("generate.tokens", id="after")
    pipe, package = open_scores(*edits)
    prompt = package.vocabulary.encode("abc")
    tokens = package.answer(prompt, 8)
    events = list(pipe.stream(tokens=prompt, temperature=0, max_new_tokens=8))
    assert [event.token for event in events if event.token is not None] == tokens
    assert [event.finish_reason for event in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1].finish_reason == "length"
    outputs = events[-1].outputs or {}
    assert outputs["before_total"].tolist() == [total(prompt)]
    assert outputs["after_total"].tolist() == [total(tokens)]
    assert outputs["text"] == package.answer_text(prompt, 8)


def test_samples_of_a_request_end_one_by_one_and_the_last_with_the_request(open_scores: Any) -> None:
    pipe, package = open_scores(stage("generate.tokens"))
    prompt = package.vocabulary.encode("abc")
    events = list(pipe.stream(tokens=prompt, temperature=0, max_new_tokens=4, n=3))
    ends = [event for event in events if event.finish_reason is not None]
    assert sorted(event.index for event in ends) == [0, 1, 2]
    assert [event.usage is not None for event in ends] == [False, False, True]
    assert (events[-1].outputs or {})["score_total"].tolist() == [total(package.answer(prompt, 4))]


def test_requests_of_one_shape_share_a_run(open_scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, package = open_scores(stage("prompt.tokens"), loop=False, max_batch=4)
    prompts = [package.vocabulary.encode(text) for text in TEXTS]
    with lane_held(monkeypatch) as held:
        streams = held.submit(pipe, prompts)
    for stream, prompt in zip(streams, prompts, strict=True):
        assert (list(stream)[-1].outputs or {})["score_total"].tolist() == [total(prompt)]
    assert held.sizes == [1, 3, 1, 2, 1]  # abc; abd, mno and rst; efghijk; the two of 17 tokens; pq


def test_declared_padding_lets_other_lengths_share_a_run(open_scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, package = open_scores(stage("prompt.tokens", pad={"ids": 0, "mask": 0}), loop=False, max_batch=4)
    prompts = [package.vocabulary.encode(text) for text in TEXTS]
    with lane_held(monkeypatch) as held:
        streams = held.submit(pipe, prompts)
    for stream, prompt in zip(streams, prompts, strict=True):
        outputs = list(stream)[-1].outputs or {}
        assert outputs["score_each"].tolist() == [[3 * id for id in prompt]]
        assert outputs["score_total"].tolist() == [total(prompt)]
    assert held.sizes == [1, 4, 3]


def test_values_without_a_batch_axis_part_runs(open_scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, _ = open_scores(stage("prompt.tokens"), loop=False)
    with lane_held(monkeypatch) as held:
        streams = held.submit(pipe, [[4, 5]])
        streams += [pipe.stream(tokens=[4, 5], parameters={"shift": shift}) for shift in (1, 2, 1, 2)]
    totals = [(list(stream)[-1].outputs or {})["score_total"].tolist() for stream in streams]
    assert totals == [[total([4, 5], shift)] for shift in (0, 1, 2, 1, 2)]
    assert held.sizes == [1, 2, 2]


def test_a_component_that_declares_no_batching_runs_alone(open_scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, _ = open_scores(stage("prompt.tokens", batch="none"), loop=False)
    with lane_held(monkeypatch) as held:
        streams = held.submit(pipe, [[4, 5]] * 3)
    assert [(list(stream)[-1].outputs or {})["score_total"].tolist() for stream in streams] == [[total([4, 5])]] * 3
    assert held.sizes == [1, 1, 1]


def test_the_job_at_fault_ends_alone(open_scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, _ = open_scores(stage("prompt.tokens"), loop=False)
    with lane_held(monkeypatch) as held:
        streams = held.submit(pipe, [[1, 1], [2, 3], [4, KNOWN + 1], [5, 6]])
    last = [list(stream)[-1] for stream in streams]
    assert [event.finish_reason for event in last] == ["stop", "stop", "error", "stop"]
    assert isinstance(last[2].error, GraphRunError)
    assert (last[3].outputs or {})["score_total"].tolist() == [total([5, 6])]
    stats = pipe.stats()
    assert (stats["queue"], stats["requests"]["failed"]) == (0, 1)


def test_cancelled_and_late_requests_end_while_the_lane_is_busy(
    open_scores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, _ = open_scores(stage("prompt.tokens"), loop=False)
    with lane_held(monkeypatch) as held:
        running, waiting = held.submit(pipe, [[1, 2], [3, 4, 5]])
        for stream in (running, waiting):
            stream.cancel()
            assert [event.finish_reason for event in stream] == ["cancelled"]
        with pytest.raises(TimedOut):
            pipe.generate(tokens=[1, 2], timeout=0.05)
        assert pipe.stats()["queue"] == 0
    assert pipe.generate(tokens=[5, 6]).outputs["score_total"].tolist() == [total([5, 6])]
    assert held.sizes == [1, 1]


def test_decode_rows_go_on_beside_a_run_in_the_lane(open_scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, package = open_scores(stage("prompt.tokens"))
    prompt = package.vocabulary.encode("abc")
    with lane_held(monkeypatch):
        stream = pipe.stream(tokens=prompt, temperature=0, max_new_tokens=20, ignore_eos=True)
        tokens = [next(stream).token for _ in range(20)]  # while its own side run has not ended
    assert tokens == package.expected(prompt, 20)
    assert (list(stream)[-1].outputs or {})["score_total"].tolist() == [total(prompt)]


def test_what_no_loop_could_take_is_refused_before_anything_runs(open_scores: Any) -> None:
    pipe, _ = open_scores(stage("prompt.tokens"))
    with pytest.raises(PromptTooLongError):
        pipe.stream(tokens=[5] * 300)
    assert "aside" not in pipe.stats()["runs"]


def test_rows_that_do_not_match_are_refused(open_scores: Any) -> None:
    def two_rows(metadata: dict[str, Any]) -> None:
        metadata["stages"][-1]["inputs"]["mask"] = [[1, 1], [1, 1]]

    pipe, _ = open_scores(stage("prompt.tokens"), two_rows, loop=False)
    with pytest.raises(RequestError, match="'ids' 1, 'mask' 2"):
        pipe.generate(tokens=[1, 2])


def test_a_defect_in_the_lane_fails_every_waiter(open_scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, _ = open_scores(stage("prompt.tokens"), loop=False)

    def broken(self: JobStage, jobs: Any) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(JobStage, "run", broken)
    with pytest.raises(EngineFailedError):
        pipe.generate(tokens=[1, 2])
    with pytest.raises(EngineFailedError):
        pipe.generate(tokens=[1, 2])


def test_closing_waits_for_the_lane_and_ends_who_waits(open_scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, _ = open_scores(stage("prompt.tokens"), loop=False)
    with lane_held(monkeypatch) as held:
        (stream,) = held.submit(pipe, [[1, 2]])
        closing = threading.Thread(target=pipe.close)
        closing.start()
        assert [event.finish_reason for event in stream] == ["error"]
        assert closing.is_alive()
    closing.join()


def test_a_profile_has_the_lane_on_a_track_of_its_own(open_scores: Any, tmp_path: Path) -> None:
    pipe, _ = open_scores(stage("prompt.tokens"), loop=False, profile=str(tmp_path / "trace.json"))
    pipe.generate(tokens=[1, 2])
    pipe.close()
    text = (tmp_path / "trace.json").read_text()
    assert '"name":"score"' in text
    assert "graph runs outside loops" in text


def test_values_nobody_reads_any_more_are_freed(open_scores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def chained(metadata: dict[str, Any]) -> None:
        metadata["outputs"].pop("score_each")
        inputs = {"ids": "prompt.tokens", "mask": "score.each", "shift": 0}
        metadata["stages"].append({"id": "twice", "run": "scores", "inputs": inputs, "outputs": {"total": "all"}})
        metadata["outputs"]["all"] = {"modality": "tensor", "value": "all"}

    pipe, _ = open_scores(stage("prompt.tokens"), chained, loop=False)
    states = []
    job = JobStage.job
    monkeypatch.setattr(JobStage, "job", lambda self, id, state: states.append(state) or job(self, id, state))
    assert pipe.generate(tokens=[4, 5]).outputs["all"].tolist() == [3 * 4 * 12 + 3 * 5 * 15]
    assert "score.each" not in states[0].values
    assert "score.total" in states[0].values

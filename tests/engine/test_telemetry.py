"""What an engine counts and traces, against what was asked of it."""

from __future__ import annotations

import json
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

import genai_pipeline as gp
from genai_pipeline.engine.lane import Lane
from genai_pipeline.engine.telemetry import Telemetry
from genai_pipeline.engine.trace import TraceFile
from genai_pipeline.errors import GraphRunError, OptionError, RequestError
from genai_pipeline.testing import write_package

DOCS = Path(__file__).resolve().parents[2] / "docs" / "telemetry.md"


def paths(figures: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def read(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return events


def test_tokens_runs_and_rows_are_those_of_the_requests(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", load={"prefill_chunk": 16, "prefix_cache": False})
    prompt = package.vocabulary.encode("abcdefghij" * 4)
    for _ in range(2):
        pipe.generate(tokens=prompt, max_new_tokens=6, temperature=0, ignore_eos=True)
    found = pipe.stats()
    assert found["tokens"] == {"prompt": 80, "generated": 12}
    assert found["runs"] == {"prefill": 6, "decode": 10, "failed": 0}
    assert found["rows"] == {"prefill": {"1": 6}, "decode": {"1": 10}}
    assert found["steps"] == 16
    assert found["requests"] == {
        **{"submitted": 2, "refused": 0, "capped": 0, "queued": 0, "admitted": 2, "cancelled": 0, "failed": 0},
        "finished": {"length": 2},
    }
    assert (found["queue"], found["running"]) == (0, 0)
    assert found["preemptions"] == {"swap": 0, "recompute": 0}


def test_requests_are_counted_by_how_they_come_and_end(open_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, _ = open_tiny("kv", context_length=4096, load={"max_batch": 1})
    first = pipe.stream("x", temperature=0, ignore_eos=True)
    next(first)
    second = pipe.stream("x", temperature=0, ignore_eos=True)
    while not pipe.stats()["requests"]["queued"]:
        next(first)
    first.cancel()
    list(first)
    next(second)
    second.cancel()
    list(second)
    with pytest.raises(RequestError):
        pipe.generate("x" * 5000)
    monkeypatch.setattr(Lane, "run", lambda *_: (_ for _ in ()).throw(GraphRunError("broken")))
    with pytest.raises(GraphRunError):
        pipe.generate("x")
    requests = pipe.stats()["requests"]
    assert requests == {
        **{"submitted": 3, "refused": 1, "capped": 0, "queued": 1, "admitted": 3, "cancelled": 2, "failed": 1},
        "finished": {},
    }
    assert pipe.stats()["runs"]["failed"] == 1


def test_figures_are_read_from_any_thread_while_requests_run(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", context_length=512)
    prompts = [package.vocabulary.encode(f"{letter}bcdefghij" * 8) for letter in "abcdefgh"]
    seen: list[dict[str, Any]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(pipe.stats())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        streams = [pipe.stream(tokens=tokens, max_new_tokens=64, temperature=0, ignore_eos=True) for tokens in prompts]
        for stream in streams:
            list(stream)
    finally:
        done.set()
        watcher.join()
    generated = [figures["tokens"]["generated"] for figures in seen]
    assert generated == sorted(generated)
    assert pipe.stats()["tokens"]["generated"] == 8 * 64
    assert pipe.stats()["requests"]["finished"] == {"length": 8}


def test_figures_stay_readable_after_the_end(open_tiny: Any) -> None:
    pipe, _ = open_tiny("script")
    pipe.generate("x", temperature=0)
    before = pipe.stats()
    pipe.close()
    after = pipe.stats()
    assert {name: after[name] for name in ("requests", "tokens", "runs")} == {
        name: before[name] for name in ("requests", "tokens", "runs")
    }


def test_what_the_prefix_cache_gave_is_counted_and_absent_without_one(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", context_length=256)
    prompt = package.vocabulary.encode("abcdefghij" * 10)
    results = [pipe.generate(tokens=prompt, max_new_tokens=2, temperature=0, ignore_eos=True) for _ in range(2)]
    found = pipe.stats()
    cached = results[1].usage.cached_tokens
    assert cached > 0
    assert found["tokens"] == {"prompt": 200 - cached, "cached": cached, "generated": 4}
    assert (found["prefix"]["hits"], found["prefix"]["misses"], found["prefix"]["hit_tokens"]) == (1, 1, cached)
    without, _ = open_tiny("kv", load={"prefix_cache": False})
    without.generate("x", max_new_tokens=1)
    assert "prefix" not in without.stats()
    assert "cached" not in without.stats()["tokens"]


def test_figures_that_cannot_be_measured_are_absent() -> None:
    telemetry = Telemetry({"pages": lambda: {"used": 3, "resident_bytes": None}, "graph_seconds": lambda: None})
    found = telemetry.snapshot()
    assert found["pages"] == {"used": 3}
    assert "graph_seconds" not in found
    assert "cached" not in found["tokens"]


def test_every_figure_is_documented(open_tiny: Any) -> None:
    pipe, _ = open_tiny("script")
    pipe.generate("x", temperature=0)
    documented = set(re.findall(r"^\| `([a-z_.<>]+)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE))
    patterns = [re.compile(re.sub(r"<[a-z]+>", "[^.]+", re.escape(name).replace(r"\<", "<"))) for name in documented]
    found = list(paths(json.loads(json.dumps(pipe.stats()))))
    assert [name for name in found if not any(pattern.fullmatch(name) for pattern in patterns)] == []
    assert [pattern.pattern for pattern in patterns if not any(map(pattern.fullmatch, found))] == []


def test_the_trace_tells_of_every_run_decision_and_sequence(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    package = write_package(tmp_path / "package", "kv")
    with gp.load(package.path, prefill_chunk=16, profile=path) as pipe:
        prompt = package.vocabulary.encode("abcdefghij" * 4)
        pipe.generate(tokens=prompt, max_new_tokens=4, temperature=0, ignore_eos=True)
        cancelled = pipe.stream(tokens=prompt, temperature=0, ignore_eos=True)
        next(cancelled)
        cancelled.cancel()
        list(cancelled)
        found = pipe.stats()
    events = read(path)
    slices = [event for event in events if event["ph"] == "X"]
    kinds = Counter(event["name"] for event in slices)
    assert {name: kinds[name] for name in ("prefill", "decode")} == {
        name: found["runs"][name] for name in ("prefill", "decode")
    }
    tokens = sum(event["args"]["tokens"] for event in slices if event["name"] == "prefill")
    assert tokens == found["tokens"]["prompt"]
    assert kinds["plan"] > 0
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in slices)
    assert sum(event["name"] == "admit" for event in events) == 2


def test_nodes_lie_in_the_runs_they_belong_to(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    before = set(Path(tempfile.gettempdir()).glob("genai-profile-*"))
    package = write_package(tmp_path / "package", "cross", update="append")
    with gp.load(package.path, profile=path) as pipe:
        prompt = package.vocabulary.encode("abcdef")
        pipe.generate(tokens=prompt, max_new_tokens=4, temperature=0, ignore_eos=True)
    events = read(path)
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    runs = [event for event in slices if tracks[event["tid"]] in ("graph runs", "graph runs outside loops")]
    nodes = [event for event in slices if tracks[event["tid"]].startswith("nodes of ")]
    assert {event["args"]["component"] for event in nodes} == {"encoder", "decoder"}
    for component, file in (("encoder", "encoder.onnx"), ("decoder", "model.onnx")):
        own = [event for event in nodes if event["args"]["component"] == component]
        assert {tracks[event["tid"]] for event in own} == {f"nodes of {component}"}
        written = {node.name for node in onnx.load(package.path / file).graph.node}
        assert written & {event["name"] for event in own}  # the runtime fuses some of them
        assert {event["args"]["provider"] for event in own} == {"cpu"}
    for node in nodes:  # times of the runtime are whole microseconds
        assert any(
            run["ts"] - 200 <= node["ts"] and node["ts"] + node["dur"] <= run["ts"] + run["dur"] + 200 for run in runs
        )
    decoder_runs = sum(tracks[event["tid"]] == "graph runs" for event in runs)
    decoder_nodes = Counter(event["name"] for event in nodes if event["args"]["component"] == "decoder")
    assert set(decoder_nodes.values()) == {decoder_runs}
    assert set(Path(tempfile.gettempdir()).glob("genai-profile-*")) <= before


def test_spans_of_a_sequence_are_closed_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    package = write_package(tmp_path / "package", "script")
    with gp.load(package.path, profile=path) as pipe:
        pipe.generate("hello", temperature=0)
        pipe.generate("hello", temperature=1, n=2)
    spans: dict[int, list[dict[str, Any]]] = {}
    for event in read(path):
        if event.get("cat") == "sequence":
            spans.setdefault(event["id"], []).append(event)
    assert len(spans) == 3
    for events in spans.values():
        assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)
        opened = [(event["ph"], event["name"].split()[0]) for event in events]
        phases = [name for ph, name in opened if ph == "b"]
        assert phases == ["sequence", "queued", "prefill", "decode"]
        assert Counter(name for ph, name in opened if ph == "e") == Counter(phases)
        assert events[-1]["args"]["finish_reason"] == "stop"


def test_a_trace_is_bounded_and_says_what_it_left_out(tmp_path: Path) -> None:
    file = TraceFile(tmp_path / "trace.json", max_events=5)
    for number in range(10):
        file.event("i", f"event {number}", 0.0)
    file.close()
    events = read(tmp_path / "trace.json")
    assert len(events) == 6
    assert (events[-1]["name"], events[-1]["args"]) == ("events_left_out", {"count": 6})
    file.close()
    file.event("i", "after the end", 0.0)
    assert read(tmp_path / "trace.json") == events


def test_a_trace_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    package = write_package(tmp_path / "package", "script")
    with pytest.raises(OptionError, match="cannot be written"):
        gp.load(package.path, profile=tmp_path / "nowhere" / "trace.json")


def test_a_full_disk_ends_the_trace_and_not_the_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    package = write_package(tmp_path / "package", "script")
    with gp.load(package.path, profile="/dev/full") as pipe:
        texts = {pipe.generate("hello", temperature=0).text for _ in range(2)}
    assert texts == {"O P Q R"}
    assert "the trace /dev/full ends early" in caplog.text

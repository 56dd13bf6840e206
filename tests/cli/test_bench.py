"""``bench``: the load is what was asked for and repeats, figures are arithmetic over what was measured."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.checking import check_package
from genai_pipeline.cli.benching.contest import Remote
from genai_pipeline.cli.benching.load import Lengths, Load, Schedule
from genai_pipeline.cli.benching.measure import Record, figures, medians, percentile, ratios
from genai_pipeline.cli.benching.peer import peer_config
from genai_pipeline.errors import BackendError, OptionError
from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.testing.media import write_embedder, write_vlm
from genai_pipeline.testing.voices import write_speaker, write_transcriber

Command = Callable[..., Any]
CLOSED = Load(requests=12, prompt_tokens=Lengths(3, 9), output_tokens=Lengths(2, 5), concurrency=3, shared_prefix=4)
OPEN = Load(requests=400, prompt_tokens=Lengths(1, 1), output_tokens=Lengths(1, 1), rate=20.0)


def encode(text: str) -> list[int]:
    return [ord(character) for character in text]


@pytest.fixture
def endless(tmp_path: Path) -> TinyPackage:
    return write_package(tmp_path / "endless", "kv", context_length=4096)


def test_a_load_repeats_with_its_seed_and_differs_between_rounds() -> None:
    assert CLOSED.schedule(encode, 0) == CLOSED.schedule(encode, 0)
    longer = replace(CLOSED, shared_prefix=30)
    rounds = [longer.schedule(encode, round) for round in range(3)] + [longer.warm_up(encode, 12)]
    assert len({schedule.jobs[0].tokens[:30] for schedule in rounds}) == 4
    assert longer.schedule(encode, 0) != replace(longer, seed=1).schedule(encode, 0)


def test_lengths_are_in_range_and_prompts_share_their_prefix() -> None:
    schedule = CLOSED.schedule(encode, 0)
    assert {job.tokens[:4] for job in schedule.jobs} == {schedule.jobs[0].tokens[:4]}
    assert {len(job.tokens) for job in schedule.jobs} <= set(range(4 + 3, 4 + 9 + 1))
    assert {job.output_tokens for job in schedule.jobs} <= set(range(2, 6))
    assert len({len(job.tokens) for job in schedule.jobs}) > 1
    assert CLOSED.max_tokens == 4 + 9 + 5
    assert schedule.concurrency == 3


def test_open_loads_arrive_at_their_rate() -> None:
    arrivals = [job.arrival for job in OPEN.schedule(encode, 0).jobs]
    assert arrivals == sorted(arrivals)
    gaps = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(1 / 20, rel=0.15)
    # exponential: the standard deviation is the mean
    assert (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 == pytest.approx(mean, rel=0.2)


def test_schedules_survive_json() -> None:
    for load in (CLOSED, OPEN):
        schedule = load.schedule(encode, 0)
        assert Schedule.from_dict(json.loads(json.dumps(schedule.to_dict()))) == schedule


@pytest.mark.parametrize("text", ["", "a", "-", "3-", "-3", "0", "5-3", "1.5", "1-2-3"])
def test_lengths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="prompt_tokens"):
        Lengths.parse(text, "prompt_tokens")


def test_figures_are_arithmetic() -> None:
    records = [
        Record(0.0, (1.0, 1.5, 2.5), prompt_tokens=10, cached_tokens=4),
        Record(1.0, (3.0, 4.0), prompt_tokens=20, cached_tokens=0),
        Record(1.0, (), prompt_tokens=5, error="no room"),
    ]
    found = figures(records)
    assert found["requests"] == 3
    assert found["failed"] == 1
    assert found["wall_seconds"] == 4.0
    assert found["output_tokens_per_second"] == 5 / 4
    assert found["total_tokens_per_second"] == 35 / 4
    assert found["requests_per_second"] == 2 / 4
    assert found["cached_tokens"] == 4
    assert found["first_token_seconds"]["p50"] == 1.5
    assert found["between_tokens_seconds"]["p50"] == 1.0
    assert found["request_seconds"]["p50"] == 2.75


def test_what_was_not_measured_is_absent() -> None:
    found = figures([Record(0.0, (1.0,), prompt_tokens=1)])
    assert "cached_tokens" not in found
    assert "between_tokens_seconds" not in found
    assert "first_token_seconds" in found
    nothing = figures([Record(0.0, (), prompt_tokens=1, error="x")])
    assert set(nothing) == {"requests", "failed", "prompt_tokens", "cached_tokens", "output_tokens"}


def test_percentiles_interpolate() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([1.0], 99) == 1.0
    assert percentile([0.0, 10.0], 90) == 9.0


def test_rounds_are_compared_pair_by_pair() -> None:
    def round_(rate: float, first: float) -> dict[str, Any]:
        return {"output_tokens_per_second": rate, "first_token_seconds": {"p50": first}}

    ours = [round_(20, 1), round_(40, 2), round_(60, 1)]
    peer = [round_(10, 2), round_(10, 1), round_(20, 3)]
    assert ratios(ours, peer) == {"output_tokens_per_second": 3, "first_token_seconds.p50": 2}
    assert medians(ours) == round_(40, 1)


def test_json_on_stdout_counts_what_was_asked_for(command: Command, endless: TinyPackage) -> None:
    options = ("--requests", 5, "--concurrency", 2, "--prompt-tokens", "4-8", "--output-tokens", 6, "--rounds", 2)
    ran = command("bench", endless.path, *options, "--shared-prefix", 3, "--json")
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    load = Load(5, Lengths(4, 8), Lengths(6, 6), concurrency=2, shared_prefix=3)
    assert report["load"] == {**load.to_dict(), "text": str(load)}
    for number, found in enumerate(report["contestants"]["genai-pipeline"]["rounds"]):
        schedule = load.schedule(lambda text: endless.vocabulary.encode(text), number)
        assert found["prompt_tokens"] == sum(len(job.tokens) for job in schedule.jobs)
        assert (found["requests"], found["failed"], found["output_tokens"]) == (5, 0, 30)
    assert report["times_better_than"] == {}
    assert "round 2 of 2" in ran.err


def test_a_table_on_stdout_and_progress_on_stderr(command: Command, endless: TinyPackage) -> None:
    options = ("--requests", 3, "--rate", 1000, "--prompt-tokens", 4, "--output-tokens", 3)
    ran = command("-q", "bench", endless.path, *options)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 requests, 1000 per second; prompts of 4 tokens, answers of 3 tokens\n")
    assert {"output tokens/s", "first token p99, ms", "between tokens p50, ms"} <= {
        line[:22].strip() for line in ran.out.splitlines()
    }


def test_load_options_reach_the_engine(command: Command, endless: TinyPackage, tmp_path: Path) -> None:
    load = ("--requests", 6, "--concurrency", 6, "--prompt-tokens", 20, "--output-tokens", 200, "--warm-up", 0)
    options = ("--max-batch", 2, "--no-prefix-cache", "--policy", "first_come", "--memory", "200MB")
    ran = command("bench", endless.path, *load, *options, "--profile", tmp_path / "trace.json")
    assert ran.code == 0, ran.err
    events = json.loads((tmp_path / "trace.json").read_text())
    assert max(event["args"]["rows"] for event in events if event["name"] == "decode" and event["ph"] == "X") == 2
    assert sum(event["name"] == "admit" for event in events) == 6
    wrong = command("bench", endless.path, *load, "--policy", "first_came")
    assert (wrong.code, wrong.out) == (2, "")
    assert "did you mean 'first_come'?" in wrong.err


def test_requests_that_fail_are_counted_and_named(command: Command, tmp_path: Path) -> None:
    small = write_package(tmp_path / "small", "kv", context_length=16)
    ran = command("bench", small.path, "--requests", 2, "--prompt-tokens", 20, "--output-tokens", 4, "--json")
    assert ran.code == 1
    (found,) = json.loads(ran.out)["contestants"]["genai-pipeline"]["rounds"]
    assert (found["requests"], found["failed"]) == (2, 2)
    assert "output_tokens_per_second" not in found
    assert "the context holds 16" in ran.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--concurrency", 2, "--rate", 2), "not both"),
        (("--concurrency", 0), "concurrency"),
        (("--rate", 0), "rate"),
        (("--requests", 0), "requests"),
        (("--rounds", 0), "rounds"),
        (("--warm-up", -1), "must be at least 0, not -1"),
        (("--shared-prefix", -1), "must not be negative"),
        (("--prompt-tokens", "9-3"), "is empty: it must rise"),
        (("--peer", "onnxruntime-genia"), "did you mean 'onnxruntime-genai'?"),
    ],
)
def test_loads_that_cannot_be_are_refused(
    command: Command, endless: TinyPackage, options: tuple[Any, ...], says: str
) -> None:
    ran = command("bench", endless.path, *options)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_a_peer_that_is_not_installed_is_named(
    command: Command, endless: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", None)
    ran = command("bench", endless.path, "--peer", "onnxruntime-genai")
    assert (ran.code, ran.out) == (5, "")
    assert "onnxruntime-genai is not installed" in ran.err
    assert "genai-pipeline[bench]" in ran.err


def test_packages_that_take_more_than_text_are_refused(command: Command, tmp_path: Path) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["inputs"]["second"] = {"modality": "text"}
        metadata["outputs"]["other"] = {"modality": "text", "value": "second.text"}

    package = write_package(tmp_path / "two", "kv", edit=edit)
    ran = command("bench", package.path)
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert "one text and nothing else" in ran.err


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (write_speaker, "which 'tiny-speaker' does not make: it gives audio (audio)"),
        (write_embedder, "which 'tiny-embedder' does not make: it gives texts (vector)"),
        (write_transcriber, "one text and nothing else, and 'tiny-transcriber' takes audio (audio), prompt (text)"),
    ],
)
def test_packages_that_do_something_else_are_refused_by_name(
    command: Command, tmp_path: Path, write: Any, says: str
) -> None:
    ran = command("bench", write(tmp_path / "package"))
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert "tools/bench_media.py" in ran.err


def test_pictures_that_may_be_left_out_are(command: Command, tmp_path: Path) -> None:
    shape = ("--requests", 2, "--warm-up", 0, "--prompt-tokens", 8, "--output-tokens", 4)
    ran = command("bench", write_vlm(tmp_path / "vlm"), *shape, "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["contestants"]["genai-pipeline"]["median"]["output_tokens"] == 8


def test_a_contestant_in_its_own_process_runs_the_same_load(endless: TinyPackage) -> None:
    schedule = CLOSED.schedule(lambda text: endless.vocabulary.encode(text), 0)
    remote = Remote("own", str(endless.path), {})
    try:
        records = remote.run(schedule)
    finally:
        remote.close()
    assert [record.prompt_tokens for record in records] == [len(job.tokens) for job in schedule.jobs]
    assert [len(record.tokens) for record in records] == [job.output_tokens for job in schedule.jobs]
    assert {record.error for record in records} == {None}


def test_an_error_in_a_contestants_process_is_told(endless: TinyPackage) -> None:
    with pytest.raises(BackendError, match="context_length is 5000"):
        Remote("own", str(endless.path), {"context_length": 5000})


def test_the_peers_configuration_follows_the_package(endless: TinyPackage) -> None:
    plan = check_package(endless.path).plan
    assert plan is not None
    config = peer_config(plan, 99)
    decoder = config["model"]["decoder"]
    signature = next(iter(plan.components.values())).signature
    ports = {decoder["inputs"][f"past_{part}_names"] % layer for part in ("key", "value") for layer in range(2)}
    ports |= {name for kind, name in decoder["inputs"].items() if not kind.startswith("past")}
    assert ports == set(signature.inputs)
    assert decoder["outputs"]["logits"] in signature.outputs
    assert (decoder["num_hidden_layers"], decoder["num_key_value_heads"], decoder["head_size"]) == (2, 2, 8)
    assert config["search"]["max_length"] == 99


@pytest.mark.parametrize(("kind", "options"), [("kv", {"update": "append"}), ("embeds", {}), ("table", {})])
def test_packages_the_peer_has_no_form_for_are_refused(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    plan = check_package(write_package(tmp_path / "other", kind, **options).path).plan
    assert plan is not None
    with pytest.raises(OptionError, match="onnxruntime-genai cannot run this package"):
        peer_config(plan, 99)

"""``verify``: the same answers as another runtime, differences with their place and margin, and what is recorded."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import genai_pipeline as gp
from genai_pipeline.cli.parity.answers import Answered, Reference, likeliest
from genai_pipeline.cli.parity.compare import Tolerance, kl_of_tops, parity
from genai_pipeline.cli.parity.recorded import REFERENCE_FILE, read_recorded, write_recorded
from genai_pipeline.errors import ReferenceFileError
from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.testing.media import write_embedder
from genai_pipeline.types import TokenLogprob

Command = Callable[..., Any]
GENAI = ("--reference", "onnxruntime-genai")


def top(*probabilities: float, first: int = 0) -> tuple[TokenLogprob, ...]:
    tokens = [TokenLogprob(first + token, math.log(p)) for token, p in enumerate(probabilities)]
    return tuple(sorted(tokens, key=lambda one: -one.logprob))


# --- arithmetic -------------------------------------------------------------------------------------------------------


def test_kl_of_listed_tokens_is_exact() -> None:
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert kl_of_tops(top(0.5, 0.5), top(0.25, 0.75)) == pytest.approx(expected)


def test_tokens_that_only_one_side_lists_are_taken_as_one() -> None:
    theirs, ours = top(0.5, 0.25), (TokenLogprob(0, math.log(0.25)), TokenLogprob(9, math.log(0.5)))
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert kl_of_tops(theirs, ours) == pytest.approx(expected)


LOGITS = st.lists(st.floats(-20, 20), min_size=3, max_size=60)


@given(logits=LOGITS, data=st.data())
def test_kl_is_a_lower_bound_and_zero_for_equal_odds(logits: list[float], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.floats(-20, 20), min_size=len(logits), max_size=len(logits)))
    p, q = (np.exp(np.array(one) - np.logaddexp.reduce(one)) for one in (logits, other))
    full = float(np.sum(p * (np.log(p) - np.log(q))))
    assert kl_of_tops(likeliest(np.array(logits)), likeliest(np.array(other))) <= full + 1e-4
    assert kl_of_tops(likeliest(np.array(logits)), likeliest(np.array(logits))) == pytest.approx(0, abs=1e-9)


def test_the_likeliest_of_equal_tokens_is_the_first() -> None:
    assert [one.token for one in likeliest(np.array([1.0, 3.0, 3.0, 2.0], np.float32))] == [1, 2, 3, 0]


def test_a_divergence_has_its_place_and_margin() -> None:
    tops = (top(0.9, 0.1), top(0.5, 0.3, 0.2), top(0.6, 0.4))
    found = parity(Answered("a", (7,), (0, 0, 0), tops), (0, 1, 2), tops)
    assert found.equal == 1
    assert found.divergence is not None
    assert (found.divergence.index, found.divergence.reference, found.divergence.package) == (1, 0, 1)
    assert found.divergence.margin == pytest.approx(math.log(0.5 / 0.3))
    assert found.kl == pytest.approx((0, 0, 0))
    assert len(found.faults(Tolerance())) == 1
    assert not found.faults(Tolerance(margin=0.6))


def test_a_reference_without_odds_is_judged_by_the_packages_own_margin() -> None:
    tops = (top(0.5, 0.4999), top(0.9, 0.1))
    found = parity(Answered("a", (7,), (0, 0)), (1, 0), tops)
    assert found.divergence is not None
    assert found.divergence.margin == pytest.approx(2e-4, abs=1e-4)
    assert (found.kl, found.mean_kl) == ((), None)
    assert not found.faults(Tolerance())


def test_odds_that_differ_count_without_a_divergence() -> None:
    found = parity(Answered("a", (7,), (0,), (top(0.9, 0.1),)), (0,), (top(0.6, 0.4),))
    (fault,) = found.faults(Tolerance())
    assert "mean KL" in fault
    assert not found.faults(Tolerance(kl=1))


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> TinyPackage:
    return write_package(tmp_path / "package", "kv", generation={"defaults": {"repetition_penalty": 1.7}})


def other_weights(folder: Path, package: TinyPackage) -> None:
    """The graph of a package with other answers in place of the package's own."""
    other = write_package(folder / "other", "kv", layers=2, end_at=20)
    shutil.copyfile(other.path / "model.onnx", package.path / "model.onnx")


def test_another_runtime_gives_the_same_tokens(command: Command, package: TinyPackage) -> None:
    ran = command("verify", package.path, *GENAI, "--tokens", 12, "--json")
    assert ran.code == 0
    report = json.loads(ran.out)
    assert report["passed"]
    assert report["reference"]["versions"].keys() == {"onnxruntime-genai"}
    for prompt in report["prompts"]:
        assert (prompt["tokens"], prompt["equal"], prompt["divergence"]) == (12, 12, None)
        assert max(prompt["kl"]) < 1e-6


def test_a_table_for_people(command: Command, package: TinyPackage, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("hello\n\nuser hello\n")
    ran = command("verify", package.path, "--prompts", tmp_path / "prompts.txt", "--tokens", 5)
    assert ran.code == 0
    rows = [line.split("\t") for line in ran.out.splitlines()]
    assert [row[:4] for row in rows[1:]] == [["hello", "5", "5", "-"], ["user hello", "5", "5", "-"]]
    assert "reference: onnxruntime-genai" in ran.err
    assert "10 of 10 tokens are equal" in ran.err


def test_what_is_recorded_is_checked_later(command: Command, package: TinyPackage, tmp_path: Path) -> None:
    assert command("verify", package.path, *GENAI, "--record", "--tokens", 24).code == 0
    recorded = read_recorded(package.path)
    for answer in recorded.answers:
        assert list(answer.tokens) == package.expected(answer.prompt, 24)
    ran = command("verify", package.path)
    assert (ran.code, "reference: onnxruntime-genai" in ran.err) == (0, True)
    assert command("validate", package.path, "--run").code == 0
    other_weights(tmp_path, package)
    ran = command("verify", package.path, "--json")
    assert ran.code == 1
    report = json.loads(ran.out)
    assert not report["passed"]
    assert "it was recorded of other files of this package" in ran.err
    apart = report["prompts"][0]["divergence"]
    assert apart["margin"] > 1
    assert report["prompts"][0]["equal"] == apart["index"]
    ran = command("validate", package.path, "--run", "--format", "json")
    assert ran.code == 3
    assert {problem["code"] for problem in json.loads(ran.out)["problems"]} == {"trial.diverges"}


@pytest.mark.parametrize(("kind", "options"), [("kv", {"update": "append"}), ("recurrent", {}), ("cross", {})])
def test_packages_without_another_runtime_record_themselves(
    command: Command, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    made = write_package(tmp_path / "made", kind, **options)
    ran = command("verify", made.path)
    assert ran.code == 2
    assert "there is no reference for this package" in ran.err
    assert "--reference self --record" in ran.err
    assert command("verify", made.path, "--reference", "self", "--record", "--tokens", 6).code == 0
    assert read_recorded(made.path).source == "self"
    assert command("verify", made.path).code == 0


def test_what_is_recorded_travels_in_an_archive(command: Command, package: TinyPackage, tmp_path: Path) -> None:
    assert command("verify", package.path, "--reference", "self", "--record").code == 0
    assert command("pack", package.path, tmp_path / "a.gpack").code == 0
    assert command("unpack", tmp_path / "a.gpack", tmp_path / "out").code == 0
    assert command("verify", tmp_path / "out", "--reference", "recorded").code == 0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--reference", "recorded"), "reference.json"),
        (("--reference", "recorded", "--record"), "cannot be recorded"),
        (("--reference", "transformers"), "needs the original model"),
        (("--reference", "transformers", "--model", "x"), "torch is not installed"),
        (("--reference", "self", "--model", "x"), "is for the reference transformers"),
        (("--tokens", 4000), "do not fit the context"),
        (("--prompts", "absent.txt"), "absent.txt"),
    ],
)
def test_what_cannot_be_done_is_said(
    command: Command, package: TinyPackage, arguments: tuple[Any, ...], match: str
) -> None:
    ran = command("verify", package.path, *arguments)
    assert ran.code in (2, 3, 5)
    assert match in ran.err
    assert not (package.path / REFERENCE_FILE).exists()


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    answer = Answered("ä", (1, 2), (3, 4), (top(0.5, 0.25), top(0.125, first=7)))
    write_recorded(tmp_path, Reference("self", {"a": "1"}, (answer,), {"digest": "d"}))
    found = read_recorded(tmp_path)
    assert (found.source, found.versions, found.package) == ("self", {"a": "1"}, {"digest": "d"})
    (read,) = found.answers
    assert (read.text, read.prompt, read.tokens) == ("ä", (1, 2), (3, 4))
    assert [[one.token for one in top] for top in read.top] == [[0, 1], [7]]
    assert read.top[0][0].logprob == pytest.approx(math.log(0.5), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda v: v.update(format="x"), "not of the format"),
        (lambda v: v.update(version=2), "version 1"),
        (lambda v: v.update(answers=[]), "answers"),
        (lambda v: v["answers"][0].update(tokens=[-1]), r"answers\[0\]\.tokens"),
        (lambda v: v["answers"][0].update(prompt="x"), r"answers\[0\]\.prompt"),
        (lambda v: v["answers"][0].update(top=[[]]), r"answers\[0\]\.top\[0\]"),
        (lambda v: v["answers"][0].update(top=[[[1, 5.0]]]), r"answers\[0\]\.top\[0\]"),
        (lambda v: v["answers"][0].update(top=[[[1, -1]], [[1, -1]]]), r"answers\[0\]\.top"),
        (lambda v: v["answers"][0].update(text=1), r"answers\[0\]\.text"),
        (lambda v: v.update(versions={"a": 1}), "versions"),
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, change: Callable[[Any], object], match: str) -> None:
    write_recorded(tmp_path, Reference("self", {}, (Answered("a", (1,), (2,)),)))
    value = json.loads((tmp_path / REFERENCE_FILE).read_text())
    change(value)
    (tmp_path / REFERENCE_FILE).write_text(json.dumps(value))
    with pytest.raises(ReferenceFileError, match=match):
        read_recorded(tmp_path)


def test_validate_run_tells_of_a_damaged_record(command: Command, package: TinyPackage) -> None:
    (package.path / REFERENCE_FILE).write_text("{")
    ran = command("validate", package.path, "--run", "--format", "json")
    assert ran.code == 3
    assert [problem["code"] for problem in json.loads(ran.out)["problems"]] == ["trial.reference"]


def test_a_record_behind_a_link_that_leads_out_is_refused(package: TinyPackage, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    (package.path / REFERENCE_FILE).symlink_to(tmp_path / "secret.json")
    with pytest.raises(ReferenceFileError, match="outside the package"):
        read_recorded(package.path)


def test_a_package_with_a_record_is_valid(package: TinyPackage) -> None:
    write_recorded(package.path, Reference("self", {}, (Answered("a", (1,), (2,)),)))
    assert not gp.validate(package.path)[1]


@pytest.mark.parametrize("reference", ["self", "auto"])
def test_a_package_that_makes_no_tokens_has_no_reference(command: Command, tmp_path: Path, reference: str) -> None:
    ran = command("verify", write_embedder(tmp_path / "embedder").path, "--reference", reference)
    assert (ran.code, ran.out) == (2, "")
    assert "makes no tokens, and with a reference packages that make tokens are compared" in ran.err
    assert "--backends" in ran.err
    assert "temperature" not in ran.err

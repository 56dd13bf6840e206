"""``validate``: every problem of every package, in three formats, and exit code 3 when there is an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.cli.reports import REPORTS
from genai_pipeline.cli.samples import TEXT, parameter_of, sample_of, samples
from genai_pipeline.metadata.model import InputSpec, ParameterSpec
from genai_pipeline.problems import Location, Problem
from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.testing.media import write_embedder, write_listener, write_towers, write_vlm
from genai_pipeline.testing.voices import write_speaker, write_transcriber

Command = Callable[..., Any]
FIELDS = ["file", "line", "column", "path", "code", "message", "hint", "severity"]


def test_a_valid_package_is_exit_code_0_and_silence_on_stdout(command: Command, tiny: TinyPackage) -> None:
    ran = command("validate", tiny.path)
    assert (ran.code, ran.out) == (0, "")
    assert "1 package checked" in ran.err
    assert command("-q", "validate", tiny.path).err == ""


def test_text_names_place_code_and_nearest_match(command: Command, broken: TinyPackage) -> None:
    ran = command("validate", broken.path)
    assert ran.code == 3
    line = next(line for line in ran.out.splitlines() if "lmits" in line)
    assert line.startswith(f"{broken.path}/inference_metadata.yaml:")
    assert ": error[" in line
    assert "did you mean 'limits'?" in ran.out


def test_json_has_the_documented_fields(command: Command, broken: TinyPackage, tiny: TinyPackage) -> None:
    ran = command("validate", broken.path, "--format", "json")
    report = json.loads(ran.out)
    assert ran.code == 3
    assert list(report) == ["valid", "problems"]
    assert report["valid"] is False
    assert [list(problem) for problem in report["problems"]] == [FIELDS] * len(report["problems"])
    assert json.loads(command("validate", tiny.path, "--format", "json").out) == {"valid": True, "problems": []}


def test_github_annotates_file_and_line(command: Command, broken: TinyPackage) -> None:
    ran = command("validate", broken.path, "--format", "github")
    assert ran.code == 3
    (line,) = (line for line in ran.out.splitlines() if "lmits" in line)
    assert line.startswith(f"::error file={broken.path}/inference_metadata.yaml,line=")
    assert ",title=" in line


def test_github_escapes_what_would_end_a_command(capsys: Any) -> None:
    place = Location("a,b:c/file.yaml", 3, 7, "stages[0]")
    REPORTS["github"]([Problem(place, "x.y", "100 %\nof it", "try, this", "warning")], False)
    REPORTS["github"]([Problem(Location("whole.yaml"), "x.z", "odd", "", "note")], False)
    assert capsys.readouterr().out.splitlines() == [
        "::warning file=a%2Cb%3Ac/file.yaml,line=3,col=7,title=x.y::100 %25%0Aof it (try, this)",
        "::notice file=whole.yaml,title=x.z::odd",
    ]


def test_folders_of_packages_are_searched_and_every_path_is_checked(
    command: Command, tmp_path: Path, broken: TinyPackage
) -> None:
    many = tmp_path / "many"
    for name in ("one", "deep/two"):
        write_package(many / name, "script")
    ran = command("validate", many)
    assert (ran.code, ran.out) == (0, "")
    assert "2 packages checked" in ran.err
    both = command("validate", many, broken.path)
    assert both.code == 3
    assert "3 packages checked, 1 error" in both.err


def test_a_path_with_nothing_in_it_is_invalid_not_a_traceback(command: Command, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent", tmp_path / "absent.yaml"):
        ran = command("validate", path)
        assert ran.code == 3
        assert str(path) in ran.out
        assert "Traceback" not in ran.err


def test_hidden_folders_and_those_of_tools_are_not_searched(command: Command, tmp_path: Path) -> None:
    for name in ("mine", ".venv/theirs", "node_modules/theirs", "deep/.git/theirs"):
        write_package(tmp_path / name, "script")
    assert "1 package checked" in command("validate", tmp_path).err
    assert "1 package checked" in command("validate", tmp_path / ".venv").err  # asked for by name


def test_a_known_name_is_checked_in_the_cache_or_said_to_be_missing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "cache"))
    ran = command("validate", "smollm2-135m")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "error: package smollm2-135m is not in the cache, so there is nothing to check",
        "hint: genai-pipeline pull smollm2-135m",
    ]


def test_a_known_name_that_was_pulled_is_checked(command: Command, smollm2_f32: Path) -> None:
    ran = command("validate", "smollm2-135m")
    assert (ran.code, ran.out) == (0, "")
    assert "checked, no problems" in ran.err


def test_run_asks_the_package_something_short(command: Command, tiny: TinyPackage, tmp_path: Path) -> None:
    writers = (write_vlm, write_listener, write_towers, write_transcriber, write_speaker, write_embedder)
    packages = [write(tmp_path / str(number)) for number, write in enumerate(writers)]
    texts = [write_package(tmp_path / kind, kind).path for kind in ("kv", "embeds", "cross", "recurrent")]
    ran = command("validate", "--run", tiny.path, *packages, *texts)
    assert (ran.code, ran.out, ran.err) == (0, "", "11 packages checked, no problems\n")


@pytest.mark.parametrize("write", [write_vlm, write_listener])
def test_run_tells_of_media_where_no_template_does(command: Command, tmp_path: Path, write: Callable[..., Any]) -> None:
    package = write(tmp_path / "package", edit=lambda metadata: metadata["tokenizer"].pop("chat_template"))
    (package.path / "chat_template.jinja").unlink()
    ran = command("validate", "--run", package)
    assert (ran.code, ran.out) == (0, "")  # so every component was reached


def test_a_sample_has_a_mark_for_each_item_that_its_prompt_lacks_one_for(tmp_path: Path) -> None:
    made = write_vlm(tmp_path / "package", edit=lambda metadata: metadata["tokenizer"].pop("chat_template"))
    (made.path / "chat_template.jinja").unlink()
    package, _ = gp.validate(made.path)
    assert package is not None

    def prompt(**given: Any) -> tuple[str, int]:
        sample = next(samples(package, given))
        return sample["prompt"], len(sample.get("images", []))

    assert prompt() == (f"<image>{TEXT}", 1)
    assert prompt(images=["a.png", "b.png"]) == (f"<image><image>{TEXT}", 2)
    assert prompt(images=[]) == (TEXT, 0)
    assert prompt(prompt="hello") == ("hello", 0)
    assert prompt(prompt="<image>hello") == ("<image>hello", 1)
    assert prompt(prompt="hello", images=["a.png"]) == ("hello", 1)  # what is given is not mended


def test_run_names_what_it_does_not_reach(command: Command, tmp_path: Path) -> None:
    def never(metadata: dict[str, Any]) -> None:
        metadata["stages"][1]["when"] = "parameters.hear"
        metadata["inputs"]["parameters"] = {"hear": {"type": "boolean", "default": False}}

    package = write_towers(tmp_path / "towers", edit=never)
    ran = command("validate", "--run", package, "--format", "json")
    (problem,) = json.loads(ran.out)["problems"]
    assert (ran.code, problem["code"], problem["severity"]) == (0, "trial.not_reached", "note")
    assert problem["message"] == "the sample does not reach the component 'sound_tower'"
    assert (problem["path"], problem["line"] > 0) == ("components.sound_tower", True)
    assert command("validate", package).out == ""


def test_run_reports_a_request_that_fails(command: Command, tmp_path: Path) -> None:
    def beyond(metadata: dict[str, Any]) -> None:
        metadata["stages"][1]["over"]["axis"] = 4

    package = write_speaker(tmp_path / "speaker", edit=beyond)
    assert command("validate", package).code == 0
    ran = command("validate", "--run", package)
    assert ran.code == 3
    assert "error[trial.failed]: a request fails: 'sound' goes over axis 4 of a value with 2 axes" in ran.out


def test_run_says_where_no_sample_fits(command: Command, tmp_path: Path) -> None:
    def shorter(metadata: dict[str, Any]) -> None:
        metadata["preprocess"]["prepare"][0]["decode"]["max_seconds"] = 0.05

    ran = command("validate", "--run", write_transcriber(tmp_path / "scribe", edit=shorter))
    assert ran.code == 0
    assert "note[trial.no_sample]: no sample fits: audio" in ran.out
    assert ran.out.count("trial.not_reached") == 3  # ear, embedding, decoder


def test_run_does_not_load_what_is_invalid(command: Command, broken: TinyPackage) -> None:
    ran = command("validate", "--run", broken.path)
    assert (ran.code, ran.out) == (3, command("validate", broken.path).out)


def test_run_gives_tensors_and_parameters_their_declared_forms() -> None:
    at = Location("x")
    vector = sample_of(InputSpec(at, "v", "vector", options={"dtype": "float16", "shape": (3,)}), 1.0)
    assert (vector.dtype, vector.shape) == ("float16", (3,))
    assert sample_of(InputSpec(at, "i", "items"), 1.0) == [0.0]
    assert sample_of(InputSpec(at, "t", "text", default="hi", is_list=True), 1.0) == ["hi"]
    assert parameter_of(ParameterSpec(at, "n", "integer", minimum=3)) == 3
    assert parameter_of(ParameterSpec(at, "c", "choice", values=("a", "b"))) == "a"
    assert parameter_of(ParameterSpec(at, "b", "boolean")) is True

"""``--backend`` and ``--provider``: what really runs is shown, and what is asked for and not there is exit code 5."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.testing import TinyPackage, write_package

Command = Callable[..., Any]
PLUGIN = "plugin:nxrt-ep-cpu"
LOADING = {
    "run": ("run", "{package}", "hello"),
    "chat": ("chat", "{package}"),
    "score": ("score", "{package}", "hello"),
    "bench": ("bench", "{package}", "--requests", "1"),
    "verify": ("verify", "{package}"),
    "transcribe": ("transcribe", "{package}", "{file}"),
    "speak": ("speak", "{package}", "hello", "--out", "{folder}/x.wav"),
    "embed": ("embed", "{package}", "hello"),
    "validate --run": ("validate", "{package}", "--run"),
}
CHECKING = {"validate": ("validate", "{package}"), "inspect": ("inspect", "{package}")}


@pytest.fixture
def cross(tmp_path: Path) -> TinyPackage:
    return write_package(tmp_path / "cross", "cross")


@pytest.fixture
def ask(command: Command, tiny: TinyPackage, tmp_path: Path) -> Command:
    """``ask(arguments, more ...)`` runs a command on a package, with a file where it takes one."""
    (tmp_path / "file.wav").write_bytes(b"RIFF")
    places = {"package": str(tiny.path), "file": str(tmp_path / "file.wav"), "folder": str(tmp_path)}
    return lambda arguments, *more: command(*(part.format(**places) for part in arguments), *more)


@pytest.mark.parametrize("arguments", [*LOADING.values(), *CHECKING.values()], ids=[*LOADING, *CHECKING])
def test_an_absent_provider_is_exit_code_5_everywhere(ask: Command, arguments: tuple[str, ...]) -> None:
    ran = ask(arguments, "--provider", "cuda")
    assert (ran.code, ran.out) == (5, "")
    assert "provider 'cuda' is not available; this runtime has " in ran.err
    assert "genai-pipeline[gpu]" in ran.err


@pytest.mark.parametrize("arguments", LOADING.values(), ids=LOADING)
def test_one_that_the_environment_asks_for_too(
    ask: Command, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_PROVIDERS", "plugin:no-such-ep")
    ran = ask(arguments)
    assert (ran.code, ran.out) == (5, "")
    assert "the provider plugin 'no-such-ep' is not available" in ran.err
    assert "installed plugins: nxrt-ep-cpu" in ran.err


@pytest.mark.parametrize("arguments", [*LOADING.values(), *CHECKING.values()], ids=[*LOADING, *CHECKING])
def test_an_absent_backend_is_exit_code_5_everywhere(
    ask: Command, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nxrt", None)
    ran = ask(arguments, "--backend", "nxrt")
    assert (ran.code, ran.out) == (5, "")
    assert "nxrt is not installed" in ran.err
    assert "genai-pipeline[nxrt]" in ran.err


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--backend", "orr"), 2, "did you mean 'ort'?"),
        (("--provider", "cdua,cpu"), 5, "did you mean 'cuda'?"),
        (("--provider", "encodr=cpu"), 2, "did you mean 'encoder'?"),
        (("--provider", "cpu|use_arena"), 2, "not of the form key=value"),
        (("--provider", "encoder=cuda,*=cpu"), 5, "provider 'cuda' is not available"),
        (("--backend", "nxrt", "--provider", "cuda"), 5, "use the backend ort"),
    ],
)
@pytest.mark.parametrize("arguments", [("inspect",), ("validate",), ("validate", "--run"), ("run",)])
def test_what_cannot_be_is_named(
    command: Command, cross: TinyPackage, arguments: tuple[str, ...], options: tuple[str, ...], code: int, says: str
) -> None:
    ran = command(*arguments, cross.path, *(("hello",) if arguments == ("run",) else ()), *options)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err


def test_inspect_loads_graphs_only_where_it_is_asked_what_runs_them(command: Command, cross: TinyPackage) -> None:
    plain = command("inspect", cross.path)
    assert "graphs\n" not in plain.out
    assert "placement" not in json.loads(command("inspect", cross.path, "--format", "json").out)
    for backend in ("ort", "nxrt"):
        text = command("inspect", cross.path, "--backend", backend).out
        assert text.startswith(plain.out)
        assert f"graphs\n  encoder (encoder.onnx): {backend} " in text
    ran = command("inspect", cross.path, "--provider", f"encoder={PLUGIN},cpu", "--format", "json")
    encoder, decoder = json.loads(ran.out)["placement"]
    assert (encoder["component"], encoder["unused_providers"], encoder["fell_to_cpu"] > 0) == (
        "encoder",
        ["cpu_ep"],
        True,
    )
    assert (decoder["providers"].keys(), decoder["fell_to_cpu"]) == ({"cpu"}, 0)


@pytest.mark.parametrize("form", ["mermaid", "dot"])
def test_a_diagram_does_not_show_it(command: Command, cross: TinyPackage, form: str) -> None:
    ran = command("inspect", cross.path, "--format", form, "--backend", "ort")
    assert (ran.code, ran.out) == (2, "")
    assert f"a {form} diagram does not show what runs the graphs" in ran.err


def test_validate_runs_on_what_is_asked_for(command: Command, cross: TinyPackage) -> None:
    assert command("validate", cross.path, "--run", "--backend", "nxrt").code == 0
    ran = command("validate", cross.path, "--run", "--provider", f"encoder={PLUGIN}")
    assert ran.code == 3
    assert "component 'encoder'" in ran.out
    assert "name cpu as the last provider" in ran.out


def test_usage_tells_what_ran(command: Command, tiny: TinyPackage) -> None:
    ran = command("run", tiny.path, "hello", "--stats", "--provider", f"{PLUGIN},cpu")
    assert "decoder (model.onnx): ort " in ran.err
    assert "; fell to the cpu: " in ran.err
    for arguments in (("run", tiny.path, "hello", "--json"), ("score", tiny.path, "hello", "--json")):
        (graph,) = json.loads(command(*arguments, "--backend", "nxrt").out)["usage"]["graphs"]
        assert (graph["component"], graph["backend"], list(graph["providers"])) == ("decoder", "nxrt", ["cpu"])


def test_what_fell_to_the_cpu_is_said_once_unless_only_errors_are_wanted(
    process: Callable[..., Any], tiny: TinyPackage
) -> None:
    for quiet, times in ((), 1), (("-q",), 0):
        out, err = process("run", tiny.path, "hello", "--provider", f"{PLUGIN},cpu", *quiet).communicate(timeout=120)
        assert out
        assert err.count("of 'decoder' run on the cpu: ") == times


@pytest.mark.parametrize("preload", ["first", "none"])
def test_a_server_does_not_start_on_what_is_not_there(
    process: Callable[..., Any], tiny: TinyPackage, preload: str
) -> None:
    serving = process("serve", tiny.path, "--port", "0", "--preload", preload, "--provider", "cuda")
    _, err = serving.communicate(timeout=120)
    assert serving.returncode == 5
    assert "provider 'cuda' is not available" in err
    assert "listening on" not in err


def test_variants_follow_the_backend(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        (decoder,) = metadata["components"].values()
        model = decoder.pop("model")
        decoder["variants"] = [{"provider": PLUGIN, "model": model}, {"provider": "cpu", "model": model}]

    package = write_package(tmp_path, "script", edit=edit).path
    assert f"{PLUGIN} is available here" in command("inspect", package).out
    why = f"the backend nxrt takes no plugin, and {PLUGIN} is one; cpu is available with the backend nxrt"
    assert why in command("inspect", package, "--backend", "nxrt").out
    monkeypatch.setenv("GENAI_PIPELINE_BACKEND", "nxrt")
    assert why in command("inspect", package).out
    assert json.loads(command("doctor", package, "--json").out)["variants"] == {"decoder": f"model.onnx: {why}"}


def test_it_is_said_before_anything_is_fetched(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "cache"))
    for arguments in (
        ("run", "smollm2-135m", "hello"),
        ("inspect", "smollm2-135m"),
        ("run", "hf:nobody/nothing", "hi"),
    ):
        assert command(*arguments, "--provider", "cuda").code == 5
    assert not list(tmp_path.rglob("*.onnx"))


def test_doctor_tells_of_variables(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_PROVIDERS", "cpu")
    told = json.loads(command("doctor", "--json").out)["environment"]
    assert (told["GENAI_PIPELINE_PROVIDERS"], told["GENAI_PIPELINE_THREADS"]) == ("cpu", None)
    monkeypatch.setenv("GENAI_PIPELINE_BACKEND", "zork")
    wrong = command("doctor")
    assert wrong.code == 2
    assert "GENAI_PIPELINE_BACKEND: unknown backend 'zork'" in wrong.out

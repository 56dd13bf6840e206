"""``verify --backends``: equal backends agree, and one that is wrong in one port at one step is told by just that."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import genai_pipeline as gp
from genai_pipeline.backends import registry
from genai_pipeline.backends.nxrt import NxrtBackend
from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.protocol import Backend, Binding, Buffer, LoadedGraph, LoadRequest
from genai_pipeline.cli.parity.sides import AskedSide, parse_sides
from genai_pipeline.cli.running import run
from genai_pipeline.cli.verifying import verify
from genai_pipeline.cli.verifying_backends import BACKENDS
from genai_pipeline.errors import GraphLoadError, GraphRunError, OptionError, RuntimeMissingError
from genai_pipeline.testing import GraphBuilder, write_package
from genai_pipeline.testing.devices import SeparateBackend, SeparateMemory
from genai_pipeline.testing.media import write_embedder, write_listener, write_towers, write_vlm
from genai_pipeline.testing.packages import write_graph
from genai_pipeline.testing.voices import write_speaker, write_transcriber

Command = Callable[..., Any]


@dataclass
class Fault:
    """What a backend does wrong: in one component, at one step, to one port; no port: the run fails."""

    component: str
    step: int
    port: str | None = None
    by: Any = 0.5


class Wrong:
    """Another backend, but for a fault."""

    name = "wrong"

    def __init__(self, fault: Fault, inner: Backend) -> None:
        self.fault, self.inner = fault, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def load(self, request: LoadRequest) -> Any:
        graph = self.inner.load(request)
        return WrongGraph(self.fault, graph) if request.component == self.fault.component else graph


class WrongGraph:
    def __init__(self, fault: Fault, inner: LoadedGraph) -> None:
        self.fault, self.inner, self.steps = fault, inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def binding(self) -> WrongBinding:
        return WrongBinding(self, self.inner.binding())


class WrongBinding:
    def __init__(self, graph: WrongGraph, inner: Binding) -> None:
        self.graph, self.inner = graph, inner
        self.bound: dict[str, Buffer | None] = {}
        self.wrong = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        self.bound[port] = buffer
        self.inner.bind_output(port, buffer)

    def run(self) -> None:
        fault = self.graph.fault
        self.wrong = self.graph.steps == fault.step
        self.graph.steps += 1
        if self.wrong and fault.port is None:
            raise GraphRunError(f"component '{fault.component}' failed to run: out of luck")
        self.inner.run()
        buffer = self.bound.get(fault.port or "")
        if self.wrong and buffer is not None:
            buffer.array()[...] += np.asarray(fault.by, buffer.dtype)

    def output(self, port: str) -> NDArray[Any]:
        found = self.inner.output(port)
        if self.wrong and port == self.graph.fault.port:
            found = found + np.asarray(self.graph.fault.by, found.dtype)
        return found


Fit = Callable[[str, Backend], str]


@pytest.fixture
def fit() -> Iterator[Fit]:
    """``fit("name", backend)`` makes a backend one that can be named."""
    names = []

    def add(name: str, backend: Any) -> str:
        registry.register(name, lambda threads: backend)
        names.append(name)
        return name

    yield add
    for name in names:
        registry.unregister(name)


def verified(command: Command, package: Any, *arguments: Any, code: int = 0) -> dict[str, Any]:
    """The report of a comparison as JSON."""
    ran = command("verify", package, "--backends", *arguments, "--json")
    assert ran.code == code, ran.err
    report: dict[str, Any] = json.loads(ran.out)
    assert report["passed"] == (code == 0)
    return report


# --- equal backends ---------------------------------------------------------------------------------------------------

KINDS: list[tuple[str, dict[str, Any]]] = [
    ("kv", {"update": "append"}),
    ("kv", {"update": "in_place"}),
    ("kv", {"update": "scatter"}),
    ("embeds", {}),
    ("cross", {}),
    ("recurrent", {}),
    ("table", {}),
]


@pytest.mark.parametrize(
    ("kind", "options", "sides"),
    [*((kind, options, "ort,nxrt") for kind, options in KINDS), ("kv", {}, "nxrt,ort"), ("kv", {}, "ort:cpu,ort")],
)
def test_equal_backends_agree(command: Command, tmp_path: Path, kind: str, options: dict[str, Any], sides: str) -> None:
    package = write_package(tmp_path, kind, **options)
    report = verified(command, package.path, sides, "--tokens", 6)
    first, second = report["backends"]
    assert f"{first['backend']},{second['backend']}" == sides
    for one, other in zip(first["components"], second["components"], strict=True):
        assert one["runs"] == other["runs"] > 0
        assert sum(other["nodes"].values()) > 0
        assert all(worst["max_absolute"] == 0 for worst in other["worst"].values())
    (request,) = second["requests"]
    assert request["equal"] == request["tokens"]


@pytest.mark.parametrize(
    "write", [write_vlm, write_listener, write_towers, write_embedder, write_speaker, write_transcriber]
)
def test_every_kind_of_package_has_a_sample(command: Command, tmp_path: Path, write: Callable[[Path], Any]) -> None:
    report = verified(command, write(tmp_path), "ort,nxrt", "--tokens", 4)
    assert report["not_reached"] == []
    assert "made up" in report["inputs"][0]


def test_state_and_logits_are_told_apart(command: Command, tmp_path: Path) -> None:
    (decoder,) = verified(command, write_package(tmp_path), "ort,nxrt")["backends"][1]["components"]
    assert decoder["worst"].keys() == {"state", "logits"}


@pytest.mark.parametrize("update", ["append", "in_place", "scatter"])
def test_state_on_a_device_is_compared(command: Command, tmp_path: Path, fit: Fit, update: str) -> None:
    device = fit("device", SeparateBackend(OrtBackend(), SeparateMemory()))
    package = write_package(tmp_path, update=update)
    for sides in (f"ort,{device}", f"{device},nxrt"):
        assert verified(command, package.path, sides, "--tokens", 4)["passed"]


class Whole(Wrong):
    """A backend that computes the logits of every token."""

    name = "whole"

    def load(self, request: LoadRequest) -> Any:
        return self.inner.load(replace(request, logits=None))


@pytest.mark.parametrize("sides", ["ort,whole", "whole,ort"])
def test_whether_a_backend_computes_all_logits_is_its_own_affair(
    command: Command, tmp_path: Path, fit: Fit, sides: str
) -> None:
    fit("whole", Whole(Fault("", 0), OrtBackend()))
    package = write_package(tmp_path)
    assert verified(command, package.path, sides, "--tokens", 4, "--prefill-chunk", 3)["passed"]


# --- one that is wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "fault", "called", "inner"),
    [
        ("kv", {"update": "append"}, Fault("decoder", 2, "logits"), "logits", OrtBackend),
        ("kv", {"update": "append"}, Fault("decoder", 0, "logits"), "logits", NxrtBackend),
        ("kv", {"update": "append"}, Fault("decoder", 3, "present.1.key"), "state", OrtBackend),
        ("kv", {"update": "scatter"}, Fault("decoder", 2, "present.0.value"), "state", OrtBackend),
        ("kv", {"update": "in_place"}, Fault("decoder", 1, "present.1.value"), "state", OrtBackend),
        ("kv", {"update": "in_place"}, Fault("decoder", 2, "present.0.key"), "state", NxrtBackend),
        ("recurrent", {}, Fault("decoder", 1, "present_state.1"), "state", NxrtBackend),
        ("embeds", {}, Fault("embed", 2, "inputs_embeds"), "output", OrtBackend),
        ("cross", {}, Fault("encoder", 0, "cross.1.key"), "output", OrtBackend),
    ],
)
def test_what_is_wrong_is_named(
    command: Command,
    tmp_path: Path,
    fit: Fit,
    kind: str,
    options: dict[str, Any],
    fault: Fault,
    called: str,
    inner: Callable[[], Backend],
) -> None:
    wrong = fit("wrong", Wrong(fault, inner()))
    package = write_package(tmp_path / "package", kind, **options)
    report = verified(command, package.path, f"ort,{wrong}", "--tokens", 6, code=1)
    found = report["backends"][1]["first_divergence"]
    assert (found["component"], found["port"], found["step"], found["kind"]) == (
        fault.component,
        fault.port,
        fault.step,
        called,
    )
    one, other = found["values"]
    assert other - one == found["max_absolute"] == 0.5
    assert (found["atol"], found["rtol"]) == (1e-3, 1e-3)
    apart = [component for component in report["backends"][1]["components"] if component["first_divergence"]]
    assert [component["component"] for component in apart] == [fault.component]
    model = fault.component if fault.component != "decoder" else "model"
    ran = command("verify", package.path, "--backends", f"ort,{wrong}", "--tokens", 6)
    assert ran.code == 1
    assert f"'{fault.port}' diverges at step {fault.step}" in ran.out
    assert (
        f"component '{fault.component}' ({model}.onnx), port '{fault.port}' ({called}), step {fault.step}: " in ran.err
    )


def test_runs_of_a_component_of_two_graphs_are_counted_together(command: Command, tmp_path: Path, fit: Fit) -> None:
    def split(metadata: dict[str, Any]) -> None:
        metadata["components"]["decoder"]["model"] = {"first": "model.onnx", "later": "later.onnx"}

    package = write_package(tmp_path / "package", update="append", edit=split)
    shutil.copyfile(package.path / "model.onnx", package.path / "later.onnx")
    report = verified(command, package.path, "ort,nxrt", "--tokens", 5)
    assert [(one["model"], one["runs"]) for one in report["backends"][1]["components"]] == [
        ("model.onnx", 1),
        ("later.onnx", 4),
    ]
    wrong = fit("wrong", Wrong(Fault("decoder", 2, "present.1.key"), OrtBackend()))
    report = verified(command, package.path, f"ort,{wrong}", "--tokens", 5, code=1)
    found = report["backends"][1]["first_divergence"]
    assert (found["component"], found["model"], found["step"]) == ("decoder", "later.onnx", 3)
    ran = command("verify", package.path, "--backends", f"ort,{wrong}", "--tokens", 5)
    assert "\tdecoder later.onnx\t" in ran.out


def test_of_one_run_the_state_is_named_before_the_logits(command: Command, tmp_path: Path, fit: Fit) -> None:
    both = Wrong(Fault("decoder", 1, "present.0.key"), Wrong(Fault("decoder", 1, "logits"), OrtBackend()))
    report = verified(command, write_package(tmp_path), f"ort,{fit('wrong', both)}", code=1)
    assert report["backends"][1]["first_divergence"]["port"] == "present.0.key"


def test_bounds_can_be_given(command: Command, tmp_path: Path, fit: Fit) -> None:
    wrong = fit("wrong", Wrong(Fault("decoder", 1, "logits", by=0.01), OrtBackend()))
    package = write_package(tmp_path)
    assert not verified(command, package.path, f"ort,{wrong}", code=1)["passed"]
    report = verified(command, package.path, f"ort,{wrong}", "--atol", 0.02)
    assert report["backends"][1]["components"][0]["worst"]["logits"]["max_absolute"] == pytest.approx(0.01, rel=1e-3)


def test_tokens_that_differ_are_named(command: Command, tmp_path: Path, fit: Fit) -> None:
    package = write_package(tmp_path, "table")
    unlikely = package.vocabulary.specials
    favour = np.eye(len(package.vocabulary))[unlikely] * 1000
    wrong = fit("wrong", Wrong(Fault("decoder", 2, "logits", by=favour), OrtBackend()))
    report = verified(command, package.path, f"ort,{wrong}", "--tokens", 5, code=1)
    (request,) = report["backends"][1]["requests"]
    assert request["divergence"]["index"] == request["equal"] == 2
    assert request["divergence"]["package"] == unlikely
    assert request["divergence"]["margin"] == pytest.approx(32, abs=1)
    assert f"token 2 is {unlikely}, not {request['divergence']['reference']}" in request["faults"][0]
    report = verified(command, package.path, f"ort,{wrong}", "--tokens", 5, "--margin", 40, "--atol", 2000)
    assert report["backends"][1]["requests"][0]["equal"] == 2  # so close that either would do


def test_logits_that_are_no_numbers_are_named(command: Command, tmp_path: Path, fit: Fit) -> None:
    wrong = fit("wrong", Wrong(Fault("decoder", 2, "logits", by=np.nan), OrtBackend()))
    report = verified(command, write_package(tmp_path, "table"), f"ort,{wrong}", "--tokens", 5, code=1)
    found = report["backends"][1]["first_divergence"]
    assert (found["step"], found["max_absolute"], found["values"][1]) == (2, "inf", "nan")


# --- what a backend has not -------------------------------------------------------------------------------------------


def test_an_operator_without_kernel_is_named(command: Command, tmp_path: Path) -> None:
    package = write_package(tmp_path, "embeds")
    odd = GraphBuilder("embedding")
    ids = odd.input("input_ids", "int64", ["batch", "sequence"])
    rows = odd.op("Unsqueeze", odd.cast(ids, "float32"), [-1])
    square = odd.op("Mul", odd.op("Unsqueeze", rows, [-1]), np.ones((1, 1, 1, 1), np.float32))
    row = odd.op("Unsqueeze", odd.op("Det", square), [-1])
    flags = odd.op("Mul", row, np.zeros((1, 1, 2), np.float32))
    odd.output("inputs_embeds", odd.op("Concat", row, row, flags, axis=-1), "float32", ["batch", "sequence", 4])
    write_graph(package.path / "embed.onnx", odd)
    report = verified(command, package.path, "ort,nxrt", code=1)
    embed, decoder = report["backends"][1]["components"]
    assert "no kernel for the operator ai.onnx::Det" in embed["error"]["message"]
    assert "component 'embed'" in embed["error"]["message"]
    assert (embed["runs"], embed["failed_at"]) == (0, None)
    assert decoder["runs"] > 0  # others are compared all the same
    assert report["backends"][1]["requests"] == []
    ran = command("verify", package.path, "--backends", "ort,nxrt")
    assert ran.code == GraphLoadError.exit_code == 1
    assert "not loaded: component 'embed': nxrt has no kernel for the operator ai.onnx::Det" in ran.out


def test_a_run_that_fails_is_named(command: Command, tmp_path: Path, fit: Fit) -> None:
    wrong = fit("wrong", Wrong(Fault("decoder", 2), OrtBackend()))
    report = verified(command, write_package(tmp_path), f"ort,{wrong}", "--tokens", 5, code=1)
    first, second = (side["components"][0] for side in report["backends"])
    assert (second["failed_at"], second["runs"], first["runs"]) == (2, 2, 5)
    assert "out of luck" in second["error"]["message"]


def test_the_first_backend_must_run(command: Command, tmp_path: Path, fit: Fit) -> None:
    wrong = fit("wrong", Wrong(Fault("decoder", 0), OrtBackend()))
    ran = command("verify", write_package(tmp_path), "--backends", f"{wrong},ort")
    assert ran.code == GraphRunError.exit_code
    assert "out of luck" in ran.err


def test_a_backend_that_is_not_installed(
    process: Callable[..., subprocess.Popen[str]], without: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    package = write_package(tmp_path / "package")
    ran = process("verify", package.path, "--backends", "ort,nxrt", env=without("nxrt"))
    _, said = ran.communicate(timeout=300)
    assert ran.returncode == RuntimeMissingError.exit_code == 5
    assert "nxrt is not installed" in said
    assert "genai-pipeline[nxrt]" in said


def test_a_provider_that_is_not_there(command: Command, tmp_path: Path) -> None:
    ran = command("verify", write_package(tmp_path), "--backends", "ort,ort:cuda")
    assert ran.code == 5
    assert "cuda" in ran.err


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_the_input_is_told(command: Command, tmp_path: Path) -> None:
    package = write_package(tmp_path / "package")
    (tmp_path / "prompts.txt").write_text("hello\nuser hello\n")
    assert verified(command, package.path, "ort,ort:cpu")["inputs"] == ["prompt: made up, 'The quick brown glorbix.'"]
    report = verified(command, package.path, "ort,ort:cpu", "--prompts", tmp_path / "prompts.txt")
    assert report["inputs"] == ["prompt: hello", "prompt: user hello"]
    assert len(report["backends"][1]["requests"]) == 2


def test_pictures_are_told_of_where_no_template_does(command: Command, tmp_path: Path) -> None:
    package = write_vlm(tmp_path / "package", edit=lambda metadata: metadata["tokenizer"].pop("chat_template"))
    (package.path / "chat_template.jinja").unlink()
    (tmp_path / "prompts.txt").write_text("hello\n")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    made = "prompt: made up, '<image>The quick brown glorbix.'; images: "
    asked = [package.path, "ort,ort:cpu"]
    assert verified(command, *asked)["inputs"] == [f"{made}made up, a picture of dark bars"]
    (told,) = verified(command, *asked, "--image", tmp_path / "a.png")["inputs"]
    assert told.startswith(made)
    assert "a.png" in told
    report = verified(command, *asked, "--prompts", tmp_path / "prompts.txt")
    assert report["inputs"] == ["prompt: hello; images: left out"]


def test_sides_are_read() -> None:
    assert parse_sides(["ort, nxrt", "ort:plugin:a-b|x=1+cpu"]) == (
        AskedSide("ort", "ort"),
        AskedSide("nxrt", "nxrt"),
        AskedSide("ort:plugin:a-b|x=1+cpu", "ort", ("plugin:a-b|x=1", "cpu")),
    )


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("ort", "two backends at least"),
        ("ort,ort", "'ort' is there twice"),
        ("ort,", "names no backend"),
        ("ort,orf", "unknown backend 'orf'"),
        ("ort,plugin:nxrt-ep-cpu", "'plugin' is no backend"),
        ("ort,ort:cpu+", "empty"),
        ("ort,ort:decoder=cpu", "for all components"),
    ],
)
def test_sides_that_cannot_be(given: str, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        parse_sides([given])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("--backends", "ort,nxrt", "--backend", "ort"), "exclude each other"),
        (("--backends", "ort,nxrt", "--provider", "cpu"), "exclude each other"),
        (("--backends", "ort,nxrt", "--record"), "no effect with --backends"),
        (("--backends", "ort,nxrt", "--reference", "self"), "no effect with --backends"),
        (("--backends", "ort,nxrt", "--max-kl", "1"), "no effect with --backends"),
        (("--backends", "ort,nxrt", "--threads", "1"), "chooses its threads itself"),
        (("--atol", "1"), "no effect without --backends"),
        (("--audio", "a.wav"), "no effect without --backends"),
    ],
)
def test_options_without_effect_are_refused(
    command: Command, tmp_path: Path, arguments: tuple[str, ...], match: str
) -> None:
    ran = command("verify", write_package(tmp_path), *arguments)
    assert ran.code == 2
    assert match in ran.err


def test_options_shared_with_run_are_in_the_panel_of_each_command() -> None:
    for command, title in ((run, "Prompt"), (verify, BACKENDS.title)):
        for name in ("images", "audio", "parameters"):
            parameter = inspect.signature(command).parameters[name]
            assert parameter.annotation.__metadata__[0].rich_help_panel == title


def test_a_backend_that_is_made_already_is_taken(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    prompt = package.vocabulary.encode("hello")
    with gp.load(package.path, backend=OrtBackend()) as pipe:
        assert list(pipe.generate(tokens=prompt, temperature=0, max_new_tokens=4).tokens) == package.answer(prompt, 4)
    with pytest.raises(OptionError, match="the backend ort is made already"):
        gp.load(package.path, backend=OrtBackend(), threads=1)

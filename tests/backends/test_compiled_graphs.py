"""Compiled graphs are kept by all that they depend on, made once, made anew when they do not load, and told of.

No provider here compiles: the runtime's compiler is run on the CPU without being asked for compiled nodes, so that it
writes the graph as it is. All else is as with one that does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.backends import ort_contexts
from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.ort_graph import OrtGraph
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.errors import OptionError, PackageInvalidError
from genai_pipeline.importers.compiled_graphs import compiled_graph, compiled_graphs
from genai_pipeline.testing import GraphBuilder, write_package

KEEP = (("ep.context_enable", "1"),)
PLUGIN = "plugin:nxrt-ep-cpu"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "compiled"


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets the CPU pass for a provider that compiles; has one entry for each time that something was compiled."""
    times: list[int] = []

    def flags(runtime: Any) -> int:
        times.append(1)
        return 0

    monkeypatch.setattr(ort_contexts, "_flags", flags)
    monkeypatch.setattr(ort_contexts, "CPU", "none")
    return times


def request(folder: Path, factor: float = 2.0, **fields: Any) -> LoadRequest:
    """y = factor * x, with weights in a file of their own."""
    graph = GraphBuilder("scale")
    x = graph.input("x", "float32", ["a", 300])
    graph.output("y", graph.op("Mul", x, np.full(300, factor, np.float32)), "float32", ["a", 300])
    folder.mkdir(parents=True, exist_ok=True)
    graph.save(folder / "model.onnx", "model.onnx.data")
    path = str(folder / "model.onnx")
    return LoadRequest("part", path, str(folder), config=KEEP, store=compiled_graph, **fields)


def answer(graph: OrtGraph) -> float:
    binding, x = graph.binding(), np.ones((2, 300), np.float32)
    binding.bind_input("x", Buffer.of(x))
    binding.bind_output("y", None)
    binding.run()
    found = float(binding.output("y")[1, 7])
    graph.close()
    return found


def test_the_second_load_finds_what_the_first_one_compiled(tmp_path: Path, home: Path, compiles: list[int]) -> None:
    asked = request(tmp_path / "package")
    for _ in range(3):
        graph = OrtBackend().load(asked)
        (note,) = graph.notes
        assert note.startswith(f"the compiled graph of 'part' lies in {home}")
        assert answer(graph) == 2
    assert len(compiles) == 1
    found = compiled_graphs()
    assert (found.folder, found.count) == (home, 1)
    assert found.nbytes > 4 * 300
    (folder,) = home.iterdir()
    assert {path.name for path in folder.iterdir()} == {"compiled.onnx", "constants.bin", ".made.json"}


def other_weights(folder: Path) -> LoadRequest:
    return request(folder, 3.0)


@pytest.mark.parametrize(
    "change",
    [
        other_weights,
        lambda folder: request(folder, providers=("cpu|use_arena=0",)),
        lambda folder: replace(request(folder), config=(*KEEP, ("session.set_denormal_as_zero", "1"))),
        lambda folder: request(folder.with_name("elsewhere")),
    ],
    ids=["weights", "options", "config", "place"],
)
def test_whatever_it_depends_on_makes_another_one(
    tmp_path: Path, compiles: list[int], change: Callable[[Path], LoadRequest]
) -> None:
    assert answer(OrtBackend().load(request(tmp_path / "package"))) == 2
    changed = change(tmp_path / "package")
    assert answer(OrtBackend().load(changed)) == (3 if change is other_weights else 2)
    assert (len(compiles), compiled_graphs().count) == (2, 2)


def test_another_version_of_the_runtime_makes_another_one(
    tmp_path: Path, compiles: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    asked = request(tmp_path / "package")
    answer(OrtBackend().load(asked))
    monkeypatch.setattr(onnxruntime, "__version__", "1.99.0")
    answer(OrtBackend().load(asked))
    assert compiled_graphs().count == 2


@pytest.mark.parametrize("damage", [b"no graph", b""], ids=["garbage", "empty"])
def test_one_that_does_not_load_is_made_anew_and_that_is_said(
    tmp_path: Path, home: Path, compiles: list[int], damage: bytes
) -> None:
    asked = request(tmp_path / "package")
    answer(OrtBackend().load(asked))
    (folder,) = home.iterdir()
    (folder / "compiled.onnx").write_bytes(damage)
    graph = OrtBackend().load(asked)
    assert graph.notes == (f"the compiled graph of 'part' lies made anew, as it did not load, in {folder}",)
    assert answer(graph) == 2
    assert len(compiles) == 2
    assert answer(OrtBackend().load(asked)) == 2
    assert len(compiles) == 2


def test_loads_at_once_make_one(tmp_path: Path, compiles: list[int]) -> None:
    asked = request(tmp_path / "package")
    with ThreadPoolExecutor(4) as threads:
        graphs = list(threads.map(lambda _: OrtBackend().load(asked), range(4)))
    assert [answer(graph) for graph in graphs] == [2] * 4
    assert len(compiles) == 1


def test_a_cache_that_cannot_be_written_is_said(
    tmp_path: Path, compiles: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "file"))
    graph = OrtBackend().load(request(tmp_path / "package"))
    (note,) = graph.notes
    assert note.startswith("no compiled graph of 'part' is kept: cannot write the package cache")
    assert answer(graph) == 2


def test_a_provider_that_gives_none_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, times, flags = request(tmp_path / "package", providers=(PLUGIN, "cpu")), [], ort_contexts._flags

    def counted(runtime: Any) -> int:
        times.append(1)
        return flags(runtime)

    monkeypatch.setattr(ort_contexts, "_flags", counted)
    for _ in range(2):
        graph = OrtBackend().load(asked)
        (note,) = graph.notes
        assert note.startswith("no compiled graph of 'part' is kept: none of cpu_ep, cpu gives one: ")
        assert answer(graph) == 2
    assert len(times) == 1


def test_the_cpu_compiles_nothing_and_that_is_said(tmp_path: Path) -> None:
    def keep(metadata: dict[str, Any]) -> None:
        metadata["components"]["decoder"]["session"] = {"config": {"ep.context_enable": "1"}}

    package = write_package(tmp_path / "package", edit=keep)
    with gp.load(package.path, backend="ort") as pipe:
        (placed,) = pipe.placement
        assert placed.notes == ("no compiled graph of 'decoder' is kept: the cpu compiles none",)
        assert pipe.generate("abc", temperature=0, max_new_tokens=3).tokens
    assert compiled_graphs().count == 0


def test_where_they_lie_is_not_the_packages_to_say(tmp_path: Path) -> None:
    def place(metadata: dict[str, Any]) -> None:
        metadata["components"]["decoder"]["session"] = {"config": {"ep.context_file_path": "here.onnx"}}

    package = write_package(tmp_path / "package", edit=place)
    with pytest.raises(PackageInvalidError, match="compiled graphs lie in the user's cache"):
        gp.load(package.path)
    asked = replace(request(tmp_path / "other"), config=(("ep.context_file_path", "here.onnx"),))
    with pytest.raises(OptionError, match="which cannot be set: compiled graphs lie in"):
        OrtBackend().load(asked)

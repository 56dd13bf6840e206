"""Operations by name: those built in, and those that other packages add, as docs/operations.md shows."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import OperationFailedError, OperationUnusableError, RequestError
from genai_pipeline.graph.capabilities import SUPPORTED
from genai_pipeline.metadata import operations
from genai_pipeline.metadata.operations import BUILT_IN, GROUP, OPERATIONS, SETTLED, TABLES, known_operation
from genai_pipeline.ops import registry
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.registry import Operation, operation
from genai_pipeline.testing import GraphBuilder

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


def block(language: str, beginning: str) -> str:
    """The example of the page that begins so."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return next(text for text in blocks if text.startswith(beginning))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Installs a distribution with a module and entry points, as pip would leave it on the path."""

    def install(name: str, source: str, points: dict[str, str]) -> None:
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"[{GROUP}]", *(f"{key} = {value}" for key, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{name}.py").write_text(source)
        for cached in (operations._added, operation):
            cached.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield install
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]
    for cached in (operations._added, operation):
        cached.cache_clear()


def test_every_built_in_operation_has_a_home_and_a_capability() -> None:
    assert sum(len(table.SPECS) for table in TABLES) == len(BUILT_IN)
    assert set(registry._HOME) == set(BUILT_IN)
    for name, spec in BUILT_IN.items():
        assert operation(name).spec is spec
        assert spec.name == name
        assert f"op.{name}" in SUPPORTED


def test_the_mapping_has_all_settled_names_and_specs_of_those_that_run() -> None:
    assert "pool" in OPERATIONS
    assert "unmask" in OPERATIONS
    assert "poool" not in OPERATIONS
    assert set(OPERATIONS) >= SETTLED
    assert len(OPERATIONS) == len(list(OPERATIONS))
    assert known_operation("unmask") is None
    with pytest.raises(KeyError):
        operation("unmask")


@pytest.fixture
def loudness(installed: Any) -> None:
    """The package of the page."""
    points = tomllib.loads(block("toml", "# pyproject"))["project"]["entry-points"][GROUP]
    installed("soundness", block("python", "# soundness"), points)


@pytest.mark.usefixtures("loudness")
def test_the_example_runs(call: Any) -> None:
    samples = np.sin(np.arange(1000) * 2 * np.pi / 100)
    found = call("loudness", {"samples": samples.tolist()})["result"]
    assert found.tolist() == pytest.approx([10 * np.log10(0.5)], abs=1e-5)
    assert call("loudness", {"samples": np.zeros((1, 9))}, floor=-60)["result"].tolist() == [-60]
    assert "loudness" in list(OPERATIONS)


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """The file of the page's package, with its graph beside it: the grade is the level and 100."""
    folder = tmp_path / "package"
    folder.mkdir()
    graph = GraphBuilder("judge")
    level = graph.input("level", "float32", ["batch"])
    graph.output("grade", graph.op("Add", level, 100.0), "float32", ["batch"])
    graph.save(folder / "judge.onnx")
    (folder / "inference_metadata.yaml").write_text(block("yaml", "# inference_metadata"))
    return folder / "inference_metadata.yaml"


@pytest.mark.usefixtures("loudness")
def test_the_example_is_checked(metadata: Path) -> None:
    text = metadata.read_text()
    assert gp.validate(metadata.parent)[1] == ()
    metadata.write_text(text.replace("floor: -90", "ceiling: 3"))
    (problem,) = gp.validate(metadata.parent)[1]
    assert (problem.code, problem.at.path) == ("call.unknown_parameter", "stages[0].with.ceiling")


@pytest.mark.usefixtures("loudness")
def test_the_example_runs_in_a_pipeline(metadata: Path) -> None:
    samples = np.float32(0.5) * np.where(np.arange(1600) % 2, 1, -1).astype(np.float32)
    with gp.load(metadata.parent) as pipe:
        outputs = pipe.run({"audio": (samples, 16000)})
    assert outputs["level"] == pytest.approx(20 * np.log10(0.5), abs=1e-4)
    assert outputs["grade"] == pytest.approx(100 + 20 * np.log10(0.5), abs=1e-4)


@pytest.mark.parametrize(
    ("source", "point", "message"),
    [
        ("raise RuntimeError('broken')", "bad:OP", "RuntimeError: broken"),
        ("OP = 3", "bad:OP", "no operation of that name"),
        ("", "bad:OP", "AttributeError"),
        ("", "missing:OP", "ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_loaded_is_named(installed: Any, metadata: Path, source: str, point: str, message: str) -> None:
    installed("bad", source, {"snap": point})
    with pytest.raises(OperationUnusableError, match=message):
        operation("snap")
    assert known_operation("snap") is None
    metadata.write_text(metadata.read_text().replace("loudness, with: {floor: -90}", "snap"))
    (problem,) = gp.validate(metadata.parent)[1]
    assert (problem.code, problem.at.path) == ("operation.unusable", "stages[0].op")
    assert message in problem.message


def test_two_of_one_name_are_refused_and_settled_names_are_never_replaced(installed: Any) -> None:
    source = block("python", "# soundness")
    installed("soundness", source, {"loudness": "soundness:LOUDNESS", "pool": "soundness:LOUDNESS"})
    installed("twin", source, {"loudness": "twin:LOUDNESS"})
    with pytest.raises(OperationUnusableError, match="soundness and twin"):
        operation("loudness")
    assert operation("pool").spec is BUILT_IN["pool"]


def test_a_failure_names_operation_and_stage_and_keeps_its_cause() -> None:
    broken = Operation(BUILT_IN["argmax"], lambda inputs, params, context: {}["x"])
    with pytest.raises(OperationFailedError, match="'argmax' of stage 'here' failed: KeyError") as caught:
        broken.run({"value": 1}, {}, OpContext(stage="here"))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("pool", {}, "misses its input 'states'"),
        ("pool", {"states": np.ones((1, 1, 1, 1))}, "has rank 3, not 4"),
        ("pool", {"states": [np.ones(2), np.ones(3)]}, "not a list of several shapes"),
        ("take", {"value": np.ones(3), "index": 0.5}, "takes whole numbers"),
        ("tokenize", {"text": 5}, "takes text"),
        ("argmax", {"value": np.array(["a"])}, "takes numbers"),
    ],
)
def test_inputs_are_checked_before_the_operation_gets_them(name: str, inputs: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        operation(name).run(inputs, {"kind": "mean", "axis": 0}, OpContext(stage="here"))

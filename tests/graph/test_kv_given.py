"""State from another component: which outputs it starts as, and what does not fit is reported where it is declared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.testing import write_package
from genai_pipeline.testing.builder import GraphBuilder

Edit = Callable[[dict[str, Any]], None]


def faults(folder: Path, edit: Edit, encoder: GraphBuilder | None = None) -> list[tuple[str, str]]:
    package = write_package(folder, "cross", update="append", edit=edit)
    if encoder is not None:
        encoder.save(package.path / "encoder.onnx")
    _, problems = gp.validate(package.path)
    return [(problem.code, problem.message) for problem in problems if problem.severity == "error"]


def entry(metadata: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = metadata["components"]["decoder"]["kv"][1]
    return state


def other_encoder(*, width: int = 8, dtype: str = "float32", length: int | str = "sequence") -> GraphBuilder:
    b = GraphBuilder("encoder")
    ids = b.input("input_ids", "int64", ["batch", "sequence"])
    wide = b.op("Expand", b.cast(b.op("Unsqueeze", ids, [1, 3]), dtype), [1, 2, 1, width])
    for layer in range(2):
        for part in ("key", "value"):
            b.output(f"cross.{layer}.{part}", b.op("Identity", wide), dtype, ["batch", 2, length, width])
    return b


def test_the_loop_reads_the_outputs_it_starts_as(tmp_path: Path) -> None:
    spec, problems = gp.validate(write_package(tmp_path, "cross", update="append").path)
    assert spec is not None, problems
    plan = gp.compile(spec)
    (run,) = plan.stage("generate").body.stages  # type: ignore[union-attr]
    read = {name: key for name, key in run.reads.items() if name.startswith("state:")}
    assert read == {
        f"state:encoder.cross.{layer}.{part}": f"listen.cross.{layer}.{part}"
        for layer in range(2)
        for part in ("key", "value")
    }
    assert set(read.values()) == set(plan.stage("listen").outputs.values())
    given = [tensor.given for tensor in plan.components["decoder"].states[1].tensors]
    assert given == ["cross.0.key", "cross.0.value", "cross.1.key", "cross.1.value"]


def test_the_length_that_a_graph_fixes_is_known(tmp_path: Path) -> None:
    package = write_package(tmp_path, "cross", update="append")
    other_encoder(length=12).save(package.path / "encoder.onnx")
    spec, problems = gp.validate(package.path)
    assert spec is not None, problems
    assert {tensor.length for tensor in gp.compile(spec).components["decoder"].states[1].tensors} == {12}


def test_without_present_outputs_have_the_names_of_past_ports(tmp_path: Path) -> None:
    def unnamed(metadata: dict[str, Any]) -> None:
        del entry(metadata)["present"]

    (found,) = {code for code, message in faults(tmp_path, unnamed) if "cross_key_values" in message}
    assert found == "kv.from"


@pytest.mark.parametrize(
    ("encoder", "said"),
    [(other_encoder(width=4), "axis 3 is 8 and 4"), (other_encoder(dtype="float16"), "float32 and float16")],
)
def test_what_does_not_fit_is_reported(tmp_path: Path, encoder: GraphBuilder, said: str) -> None:
    found = faults(tmp_path, lambda metadata: None, encoder)
    assert any(code.startswith("kv.") and ("do not fit" in message) for code, message in found), found
    assert any(said in message for _, message in found), found


def test_growing_state_takes_none(tmp_path: Path) -> None:
    def growing(metadata: dict[str, Any]) -> None:
        entry(metadata)["update"] = "append"

    assert ("kv.from", "state with update: append starts empty and takes none from 'encoder'") in faults(
        tmp_path, growing
    )


def test_an_encoder_in_the_same_body_is_refused(tmp_path: Path) -> None:
    def inside(metadata: dict[str, Any]) -> None:
        encode, loop = metadata["stages"]
        loop["body"].insert(0, encode)
        metadata["stages"] = [loop]

    assert any(code == "kv.from" and "in every step" in message for code, message in faults(tmp_path, inside))


def test_an_encoder_that_runs_for_each_item_is_refused(tmp_path: Path) -> None:
    def listed(metadata: dict[str, Any]) -> None:
        metadata["inputs"]["parts"] = {"modality": "text", "list": True}
        metadata["stages"][0] |= {"for_each": "parts", "inputs": {"input_ids": "parts.tokens"}}
        metadata["stages"][1]["prompt"] = "prompt.tokens"

    assert any(code == "kv.from" and "for each item" in message for code, message in faults(tmp_path, listed))

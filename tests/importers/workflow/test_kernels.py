"""What the fused attention's kernel refuses at run time stops an import."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.graph_facts import read_facts
from genai_pipeline.importers.structure.parts import read_part
from genai_pipeline.importers.workflow.kernels import check_kernels


def _fused(folder: Path, angles: int, rotary: int) -> Path:
    """A graph of one attention that turns so many angles of a head."""
    names = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total")
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", "s", 64]) for name in names]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["b", "s", 64])]
    tables = [numpy_helper.from_array(np.ones((32, angles), np.float32), name) for name in ("cos", "sin")]
    node = helper.make_node(
        "GroupQueryAttention", [*names, "cos", "sin"], ["out"], domain="com.microsoft", do_rotary=rotary, num_heads=1
    )
    graph = helper.make_graph([node], "fused", inputs, outputs, tables)
    onnx.save(helper.make_model(graph), str(folder / "model.onnx"))
    return folder


def _checked(folder: Path) -> None:
    report = ImportReport()
    check_kernels(SourceFolder(folder), [read_part(read_facts(folder, "model.onnx"), None)], report)
    report.check("it")


@pytest.mark.parametrize(("angles", "rotary"), [(8, 1), (32, 1), (2, 0)])
def test_multiples_of_eight_angles_pass_and_so_does_attention_that_turns_nothing(
    tmp_path: Path, angles: int, rotary: int
) -> None:
    _checked(_fused(tmp_path, angles, rotary))


@pytest.mark.parametrize("angles", [2, 12])
def test_other_angles_are_refused_with_a_way_out(tmp_path: Path, angles: int) -> None:
    with pytest.raises(ImportRefusedError, match=f"turns {2 * angles} channels of a head") as caught:
        _checked(_fused(tmp_path, angles, 1))
    assert "portable operators" in (caught.value.hint or "")

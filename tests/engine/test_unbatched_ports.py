"""Ports whose first axis is open and no batch: what they take is the same for all rows of a run, in loops too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import genai_pipeline as gp
from genai_pipeline.testing import write_package

TEXTS = ["a", "bcd", "efghijk", "mn" * 9]
SHIFTS: list[list[float]] = [[1, -1], [], [2, -1, -1], [1, -1]]  # each adds up to 0, so that no answer changes
ASK = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}


def shifted(path: Path) -> None:
    """Gives the graph of embeddings an input ``shift`` [n], whose sum is added to its output."""
    model = onnx.load(path)
    model.graph.input.append(helper.make_tensor_value_info("shift", TensorProto.FLOAT, ["n"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "shift_axis"))
    (last,) = (node for node in model.graph.node if "inputs_embeds" in node.output)
    last.output[0] = "unshifted"
    model.graph.node.append(helper.make_node("ReduceSum", ["shift", "shift_axis"], ["sum_"], keepdims=0))
    model.graph.node.append(helper.make_node("Add", ["unshifted", "sum_"], ["inputs_embeds"]))
    onnx.save(model, path)


@pytest.mark.parametrize("source", ["extra.values", "data.zeros", "[1, -1]"])
def test_rows_of_one_run_share_its_value(tmp_path: Path, source: str) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["components"]["embed"]["no_batch_axis"] = ["shift"]
        metadata["stages"][0]["body"][0]["inputs"]["shift"] = [1, -1] if source == "[1, -1]" else source
        if source == "extra.values":
            metadata["inputs"]["extra"] = {"modality": "tensor", "dtype": "float32", "shape": ["n"]}
        elif source == "data.zeros":
            metadata["data"] = {"zeros": {"file": "zeros.npy"}}

    package = write_package(tmp_path / "package", "embeds", edit=edit)
    shifted(package.path / "embed.onnx")
    np.save(package.path / "zeros.npy", np.zeros((0,), np.float32))
    with gp.load(package.path, max_batch=4) as pipe:
        streams = []
        for text, shift in zip(TEXTS, SHIFTS, strict=True):
            given = {"extra": np.array(shift, np.float32)} if source == "extra.values" else {}
            streams.append(pipe.stream_run({"prompt": text, **given}, **ASK))
        for stream, text in zip(streams, TEXTS, strict=True):
            expected = package.expected(package.vocabulary.chat_prompt(("user", text)), 8)
            assert [event.token for event in stream if event.token is not None] == expected

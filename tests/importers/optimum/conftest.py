"""Folders as Optimum and transformers.js lay them out, made of closed-form graphs with their ports renamed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from genai_pipeline.testing.graphs.caches import Geometry
from genai_pipeline.testing.graphs.decoder import Decoder
from genai_pipeline.testing.graphs.rules import SumRule
from genai_pipeline.testing.kinds import KindOptions, make_cache
from genai_pipeline.testing.packages import TinyPackage, write_package

CONFIG = {"model_type": "tiny", "max_position_embeddings": 256, "eos_token_id": 1}
CROSS_NAMES = {
    "source_states": "encoder_hidden_states",
    "cross_key_values.": "past_key_values.",
    "cross.": "present.",
}


class Folder:
    """One source folder under construction, and the package whose graphs it has."""

    def __init__(self, path: Path, package: TinyPackage) -> None:
        self.path, self.package = path, package
        (path / "onnx").mkdir(parents=True)
        shutil.copyfile(package.path / "tokenizer.json", path / "tokenizer.json")
        self.json("config.json", CONFIG)

    def json(self, name: str, value: Any) -> None:
        """Write a config file."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value), encoding="utf-8")

    def graph(self, name: str, model: onnx.ModelProto) -> None:
        """Write a graph to onnx/NAME."""
        onnx.save(model, str(self.path / "onnx" / name))

    def tiny(self, name: str = "model.onnx") -> onnx.ModelProto:
        """A graph of the closed-form package."""
        return onnx.load(self.package.path / name)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Folder]:
    """``folder(kind, **options)``: a source folder for a kind of closed-form package."""

    def make(kind: str = "kv", **options: Any) -> Folder:
        package = write_package(tmp_path / f"tiny-{kind}", kind, **{"update": "append", **options})
        return Folder(tmp_path / "source", package)

    return make


def decoder_of(package: TinyPackage) -> Decoder:
    """The decoder of a package, to be built in another form."""
    assert isinstance(package.twin, SumRule)
    return Decoder(package.twin, make_cache(KindOptions(**package.options)), Geometry())


def renamed(model: onnx.ModelProto, rename: Callable[[str], str]) -> onnx.ModelProto:
    """Every value of the graph and of its branches under another name."""
    _rename(model.graph, rename)
    return model


def _rename(graph: onnx.GraphProto, rename: Callable[[str], str]) -> None:
    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        value.name = rename(value.name)
    for node in graph.node:
        node.input[:] = [rename(name) for name in node.input]
        node.output[:] = [rename(name) for name in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, rename)


def cross_name(name: str) -> str:
    """The name that Optimum gives a port of the closed-form encoder and decoder."""
    prefixed = name.startswith(("past_key_values.", "present."))
    for ours, theirs in CROSS_NAMES.items():
        if name.startswith(ours):
            name = theirs + name[len(ours) :]
            return _with_owner(name, "encoder") if ours.endswith(".") else name
    return _with_owner(name, "decoder") if prefixed else name


def _with_owner(name: str, owner: str) -> str:
    head, layer, part = name.split(".")
    return f"{head}.{layer}.{owner}.{part}"


def with_switch(model: onnx.ModelProto) -> onnx.ModelProto:
    """With ``use_cache_branch``: the answer is wrong unless it says whether there is a past."""
    graph = model.graph
    past = next(port.name for port in graph.input if port.name.startswith("past"))
    for node in graph.node:
        node.output[:] = ["logits_right" if name == "logits" else name for name in node.output]
    graph.input.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "no_tokens"))
    graph.node.extend(
        [
            helper.make_node("Shape", [past], ["past_tokens"], start=2, end=3),
            helper.make_node("Greater", ["past_tokens", "no_tokens"], ["has_past"]),
            helper.make_node("Equal", ["has_past", "use_cache_branch"], ["fits"]),
            helper.make_node("Neg", ["logits_right"], ["logits_wrong"]),
            helper.make_node("Where", ["fits", "logits_right", "logits_wrong"], ["logits"]),
        ]
    )
    return model


def kept(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """A mapping without some of its keys."""
    return {key: value for key, value in values.items() if key not in names}

"""Taking models apart: the part of a graph between named values as a model of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from genai_pipeline.errors import GraphFileError
from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.signature import Dim

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Cut:
    """A value of a graph that becomes the port ``port`` of a part; its dtype and shape need not be in the file."""

    value: str
    port: str
    dtype: str
    shape: tuple[Dim, ...]


def extract_part(model: ir.Model, name: str, inputs: Sequence[Cut], outputs: Sequence[Cut]) -> ir.Model:
    """The nodes between ``inputs`` and ``outputs``, with the weights they read; ``model`` stays as it is.

    Raises GraphFileError for a value that the graph lacks, and for outputs that need more than ``inputs`` and weights.
    """
    known = onnx_file.ir.convenience.create_value_mapping(model.graph, include_subgraphs=False)
    for cut in (*inputs, *outputs):
        if cut.value not in known:
            raise GraphFileError(f"the graph has no value '{cut.value}'", problem="model.invalid")
    try:
        part = onnx_file.ir.convenience.extract(
            model.graph, [cut.value for cut in inputs], [cut.value for cut in outputs]
        )
    except ValueError as error:
        ends = " and ".join(f"'{cut.value}'" for cut in outputs)
        raise GraphFileError(f"{ends} cannot be cut out: {error}", problem="model.invalid") from error
    part.name = name
    for value, cut in zip((*part.inputs, *part.outputs), (*inputs, *outputs), strict=True):
        _make_port(value, cut)
    return onnx_file.ir.Model(part, ir_version=model.ir_version, producer_name=model.producer_name)


def value_read_with(model: ir.Model, weight: str) -> str | None:
    """The first input of the node that reads a weight: what goes into a layer. None where nothing reads it."""
    for node in model.graph:
        if any(value is not None and value.name == weight for value in node.inputs[1:]) and node.inputs[0] is not None:
            return node.inputs[0].name
    return None


def value_behind(model: ir.Model, output: str, op_types: frozenset[str]) -> str | None:
    """What a graph output is made of, before nodes of these types; None where the graph has no such output."""
    value = next((value for value in model.graph.outputs if value.name == output), None)
    while value is not None and (node := value.producer()) is not None and node.op_type in op_types:
        value = node.inputs[0]
    return None if value is None else value.name


def _make_port(value: ir.Value, cut: Cut) -> None:
    ir_ = onnx_file.ir
    value.name = cut.port
    value.shape = ir_.Shape(cut.shape)
    value.type = ir_.TensorType(onnx_file.element_type(cut.dtype))

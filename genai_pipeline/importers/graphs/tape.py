"""A graph written down node by node, its weights streamed to the external data file as they are added."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from genai_pipeline.graph.onnx_file import ir
from genai_pipeline.importers.graphs.matrices import Array

MICROSOFT = "com.microsoft"  # domain of ONNX Runtime's own operators
_ALIGNMENT = 4096  # bytes: weights start on a page, so that a runtime can map them
_IR_VERSION = 10
_OPSETS = {"": 21, MICROSOFT: 1}
_DTYPES = {"float32": ir.DataType.FLOAT, "int64": ir.DataType.INT64}
Value = ir.Value


class WeightFile:
    """The external data file under construction; holds one tensor in memory at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: BinaryIO = path.open("wb")

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._stream.flush()
            os.fsync(self._stream.fileno())
        self._stream.close()

    def add(self, name: str, array: Array) -> Value:
        """Appends ``array`` and returns the graph value that reads it."""
        self._stream.write(bytes(-self._stream.tell() % _ALIGNMENT))
        offset = self._stream.tell()
        stored = np.ascontiguousarray(array)
        self._stream.write(stored.data)
        return self._value(name, ir.DataType.from_numpy(stored.dtype), stored.shape, offset, stored.nbytes)

    def alias(self, name: str, stored: Value, shape: Sequence[int]) -> Value:
        """The same bytes as ``stored`` under another name and shape: kept once on disk."""
        tensor = stored.const_value
        assert isinstance(tensor, ir.ExternalTensor)
        assert tensor.offset is not None
        assert tensor.length is not None
        return self._value(name, tensor.dtype, shape, tensor.offset, tensor.length)

    def _value(self, name: str, dtype: ir.DataType, shape: Sequence[int], offset: int, length: int) -> Value:
        tensor = ir.ExternalTensor(
            self.path.name, offset, length, dtype, shape=ir.Shape(shape), name=name, base_dir=self.path.parent
        )
        return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=tensor)


class GraphTape:
    """Collects inputs, nodes and outputs of one graph; ``save`` writes it."""

    def __init__(self, weights: WeightFile) -> None:
        self.weights = weights
        self._nodes: list[ir.Node] = []
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        self._initializers: dict[str, Value] = {}

    def input(self, name: str, dtype: str, shape: Sequence[int | str]) -> Value:
        """Declares a graph input."""
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(_DTYPES[dtype]))
        self._inputs.append(value)
        return value

    def output(self, value: Value, name: str, dtype: str, shape: Sequence[int | str]) -> None:
        """Makes ``value`` the graph output ``name``."""
        value.name, value.shape, value.type = name, ir.Shape(shape), ir.TensorType(_DTYPES[dtype])
        self._outputs.append(value)

    def weight(self, name: str, array: Array) -> Value:
        """A weight, written to the external data file at once."""
        return self._keep(self.weights.add(name, array))

    def alias(self, name: str, stored: Value, shape: Sequence[int]) -> Value:
        """A second view of a weight."""
        return self._keep(self.weights.alias(name, stored, shape))

    def constant(self, name: str, array: Array) -> Value:
        """A small constant kept in the graph; asking for one name again gives the same value."""
        if name not in self._initializers:
            tensor = ir.Tensor(array, name=name)
            value = ir.Value(
                name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
            )
            self._keep(value)
        return self._initializers[name]

    def op(self, op_type: str, *inputs: Value | None, name: str, domain: str = "", **attributes: Any) -> Value:
        """Adds a node with one output."""
        return self.ops(op_type, *inputs, name=name, outputs=1, domain=domain, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: Value | None, name: str, outputs: int, domain: str = "", **attributes: Any
    ) -> Sequence[Value]:
        """Adds a node with several outputs, named after the node."""
        node = ir.node(op_type, inputs, attributes, domain=domain, num_outputs=outputs, name=name)
        for index, value in enumerate(node.outputs):
            value.name = f"{name}/{index}"
        self._nodes.append(node)
        return node.outputs

    def save(self, path: Path, name: str) -> None:
        """Writes the graph file; the weights are in their own file already."""
        graph = ir.Graph(
            self._inputs,
            self._outputs,
            nodes=self._nodes,
            initializers=tuple(self._initializers.values()),
            opset_imports=_OPSETS,
            name=name,
        )
        ir.save(ir.Model(graph, ir_version=_IR_VERSION, producer_name="genai_pipeline"), path)

    def _keep(self, value: Value) -> Value:
        assert value.name is not None
        assert value.name not in self._initializers
        self._initializers[value.name] = value
        return value

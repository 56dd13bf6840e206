"""Adds nodes and constants to a graph that is being rewritten, under names of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from genai_pipeline.graph import onnx_file

if TYPE_CHECKING:
    import onnx_ir as ir


class Emitter:
    """New nodes go in front of ``before``, or to the end; names begin with ``prefix``."""

    def __init__(self, graph: ir.Graph, prefix: str, before: ir.Node | None = None) -> None:
        self._graph = graph
        self._prefix = prefix
        self._before = before
        self._count = 0

    def node(
        self, domain: str, op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, ir.Attr]
    ) -> ir.Value:
        """The first output of a new node."""
        return self._placed(onnx_file.ir.Node(domain, op_type, inputs, attributes, name=self._name(op_type)))

    def op(self, op_type: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        """The first output of a new node of the standard operators."""
        return self._placed(onnx_file.ir.node(op_type, inputs, attributes, name=self._name(op_type)))

    def cast(self, value: ir.Value, dtype: str) -> ir.Value:
        """The value as another type."""
        return self.op("Cast", value, to=int(onnx_file.element_type(dtype)))

    def ints(self, values: Sequence[int]) -> ir.Value:
        """A constant int64 vector."""
        return self.constant(list(values), "int64")

    def constant(self, value: Any, dtype: str) -> ir.Value:
        """A constant scalar or array."""
        ir_, name, array = onnx_file.ir, self._name("constant"), np.array(value, dtype)
        made = ir_.Value(name=name, shape=ir_.Shape(array.shape), const_value=ir_.Tensor(array, name=name))
        made.dtype = ir_.DataType.from_numpy(array.dtype)
        self._graph.register_initializer(made)
        return made

    def _placed(self, node: ir.Node) -> ir.Value:
        node.outputs[0].name = f"{node.name}/out"
        if self._before is None:
            self._graph.append(node)
        else:
            self._graph.insert_before(self._before, node)
        return node.outputs[0]

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{self._prefix}/{what}_{self._count}"

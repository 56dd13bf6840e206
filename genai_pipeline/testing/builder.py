"""A small graph builder: ports, constants and nodes by name, saved as an ONNX file the runtime can load.

Values are those of onnx_ir. Where an operand is a number, it becomes an int64 or float32 scalar, an array becomes
an initializer, so arithmetic reads as arithmetic::

    graph = GraphBuilder("double")
    x = graph.input("x", "float32", ["batch", 4])
    graph.output("y", graph.op("Mul", x, 2.0), "float32", ["batch", 4])
    graph.save(folder / "double.onnx")
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.graph import onnx_file

if TYPE_CHECKING:
    import onnx_ir

    Value = onnx_ir.Value
else:
    Value = Any  # naming the type must not import the library

Dim = int | str | None
Operand = Any  # Value | int | float | NDArray | None: what ``op`` accepts

OPSET = 21  # attention over growing caches needs nothing newer; ``opset=24`` brings TensorScatter
IR_VERSION = 10
WEIGHT_BYTES = 512  # smaller tensors stay in the graph file: shape inference needs axes and sizes
MICROSOFT = "com.microsoft"


def ir_dtype(name: str) -> onnx_ir.DataType:
    """The onnx_ir data type of a numpy-style name ("float32", "bfloat16", "int64", "bool", ...)."""
    aliases = {"float32": "FLOAT", "float64": "DOUBLE"}
    return onnx_file.ir.DataType[aliases.get(name, name.upper())]


class GraphBuilder:
    """Collects the ports, initializers and nodes of one graph; ``model()`` or ``save()`` ends the work.

    Names of nodes and constants begin with ``prefix``, so that those of a subgraph differ from those around it.
    """

    def __init__(self, name: str = "graph", opset: int = OPSET, prefix: str = "") -> None:
        self._name = name
        self._opset = opset
        self._prefix = prefix
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        self._initializers: list[Value] = []
        self._nodes: list[onnx_ir.Node] = []
        self._domains: set[str] = set()

    def input(self, name: str, dtype: str, shape: Sequence[Dim]) -> Value:
        """A graph input; symbolic dimensions are strings."""
        value = self._typed(onnx_file.ir.Value(name=name), dtype, shape)
        self._inputs.append(value)
        return value

    def output(self, name: str, value: Value, dtype: str, shape: Sequence[Dim]) -> None:
        """Make ``value`` a graph output of that name; a value that has a name already gets a copy under the new one."""
        if value in self._inputs or value in self._outputs or value in self._initializers:
            value = self.op("Identity", value)
        value.name = name
        self._outputs.append(self._typed(value, dtype, shape))

    def const(self, value: Any, dtype: str | None = None, name: str | None = None) -> Value:
        """An initializer: Python ints become int64, floats float32, unless ``dtype`` says otherwise."""
        array = np.asarray(value)
        if dtype is not None:
            array = array.astype(dtype)
        elif array.dtype == np.float64:
            array = array.astype(np.float32)
        elif array.dtype.kind == "i" and not isinstance(value, np.ndarray):
            array = array.astype(np.int64)
        label = f"{self._prefix}{name or f'constant_{len(self._initializers)}'}"
        tensor = onnx_file.ir.tensor(array, name=label)
        initializer = onnx_file.ir.Value(name=label, const_value=tensor)
        initializer.shape, initializer.dtype = tensor.shape, tensor.dtype  # type: ignore[assignment]
        self._initializers.append(initializer)
        return initializer

    def op(self, op_type: str, *inputs: Operand, domain: str = "", **attributes: Any) -> Value:
        """One node with one output."""
        return self.ops(op_type, *inputs, domain=domain, count=1, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: Operand, domain: str = "", count: int = 1, **attributes: Any
    ) -> tuple[Value, ...]:
        """One node with ``count`` outputs."""
        values = [self._operand(item) for item in inputs]
        node = onnx_file.ir.node(op_type, values, attributes=attributes, domain=domain, num_outputs=count)
        node.name = f"{self._prefix}{op_type}_{len(self._nodes)}"
        for index, value in enumerate(node.outputs):
            value.name = f"{node.name}_out{index}"
        self._nodes.append(node)
        self._domains.add(domain)
        return tuple(node.outputs)

    def cast(self, value: Value, dtype: str) -> Value:
        """``value`` in another dtype."""
        return self.op("Cast", value, to=int(ir_dtype(dtype)))

    def size(self, value: Value, axis: int) -> Value:
        """The length of one axis, int64 of shape [1]."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def subgraph(self, body: GraphBuilder) -> onnx_ir.Graph:
        """``body`` as a graph attribute, e.g. of Scan; its ports become the subgraph's."""
        self._domains |= body._domains
        return body._graph({})

    def port(self, name: str) -> Value | None:
        """The input of that name, if it was declared."""
        return next((value for value in self._inputs if value.name == name), None)

    def model(self) -> onnx_ir.Model:
        """The finished model; the builder is not used again."""
        domains = {domain: 1 for domain in sorted(self._domains) if domain}
        graph = self._graph({"": self._opset, **domains})
        return onnx_file.ir.Model(graph, ir_version=IR_VERSION, producer_name="genai_pipeline.testing")

    def save(self, path: Path, external_data: str | None = None) -> Path:
        """Write the model to ``path``, its weights beside it in a file named ``external_data`` if given."""
        if external_data is not None:
            onnx_file.ir.save(self.model(), path, external_data=external_data, size_threshold_bytes=WEIGHT_BYTES)
        else:
            onnx_file.ir.save(self.model(), path)
        return path

    def _graph(self, opsets: dict[str, int]) -> onnx_ir.Graph:
        """Everything collected, as a graph."""
        return onnx_file.ir.Graph(
            self._inputs,
            self._outputs,
            nodes=self._nodes,
            initializers=self._initializers,
            opset_imports=opsets,
            name=self._name,
        )

    def _operand(self, item: Operand) -> Value | None:
        """An operand as a value: numbers and arrays become initializers."""
        if item is None or isinstance(item, onnx_file.ir.Value):
            return item
        return self.const(item)

    @staticmethod
    def _typed(value: Value, dtype: str, shape: Sequence[Dim]) -> Value:
        """Set dtype and shape of a port."""
        value.dtype = ir_dtype(dtype)
        value.shape = onnx_file.ir.Shape(shape)
        return value


def digit_head(vocabulary: int) -> NDArray[np.float32]:
    """The head of the closed-form decoders, [2 * base, vocabulary]: column v has ones at v // base and base + v % base.

    An answer goes in as two one-hot digits, so its logit is the sum of both and every other token has at most one.
    """
    base = head_base(vocabulary)
    tokens = np.arange(vocabulary)
    head = np.zeros((2 * base, vocabulary), np.float32)
    head[tokens // base, tokens] = 1.0
    head[base + tokens % base, tokens] = 1.0
    return head


def head_base(vocabulary: int) -> int:
    """The smallest base in which every token id has two digits."""
    base = int(np.ceil(np.sqrt(vocabulary)))
    return max(base, 1)

"""What a graph says about a value without running anything: rank, sizes, whether it differs by position.

Shapes come from the file where it has them, else from the operators that are listed here by what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from genai_pipeline.graph import onnx_file

if TYPE_CHECKING:
    import onnx_ir as ir

# fmt: off
ELEMENTWISE = frozenset({
    "Abs", "Add", "BiasGelu", "Cast", "CastLike", "Ceil", "Clip", "Div", "Elu", "Erf", "Exp", "FastGelu", "Floor",
    "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "Pow",
    "QuickGelu", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Sub", "Tanh",
    "Where",
})
REDUCTIONS = frozenset({
    "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
})
# fmt: on
QUANTIZE = frozenset({"QuantizeLinear", "DequantizeLinear"})
MATMULS = frozenset({"MatMul", "FusedMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QLinearMatMul"})
HEADS = MATMULS | {"Gemm", "MatMulNBits", "MatMulBnb4"}
WEIGHT_INPUT: Mapping[str, int] = {"QLinearMatMul": 3}  # of MATMULS; all others: 1
_SAME_SHAPE = QUANTIZE | {"Cast", "Identity"}
MAX_RANK = 8  # longer constants are no shapes


def rank_of(value: ir.Value | None) -> int | None:
    """Rank of a value, from its shape or from what computes it; None if it cannot be told."""
    shape = shape_of(value)
    if shape is not None:
        return len(shape)
    node = value.producer() if value is not None else None
    if node is None:
        return None
    if node.op_type == "Gemm":
        return 2
    if node.op_type == "Reshape":
        target = constant_ints(node.inputs[1])
        return None if target is None else len(target)
    if node.op_type == "Transpose" or node.op_type in ELEMENTWISE | QUANTIZE | HEADS:
        return rank_of(node.inputs[0])
    return None


def last_dim(value: ir.Value | None) -> int | None:
    """Size of a value's last axis; None if it cannot be told."""
    shape = shape_of(value)
    if shape and shape[-1] is not None:
        return shape[-1]
    node = value.producer() if value is not None else None
    if node is None:
        return None
    if node.op_type in ("MatMulNBits", "MatMulBnb4"):
        return int_attribute(node, "N", 0) or None
    if node.op_type in MATMULS or node.op_type == "Gemm":
        weight = shape_of(node.inputs[WEIGHT_INPUT.get(node.op_type, 1)])
        return weight[0 if int_attribute(node, "transB", 0) else -1] if weight else None
    if node.op_type in ELEMENTWISE | QUANTIZE or "Normalization" in node.op_type:
        return next((size for item in node.inputs if (size := last_dim(item)) not in (None, 1)), None)
    return None


def is_free(value: ir.Value | None) -> bool:
    """Whether a value is the same for all positions: a constant, made of constants, or a scalar.

    A scalar may depend on the request, e.g. the scale of a dynamic quantisation.
    """
    pending, seen = [value], {value}
    while pending:
        item = pending.pop()
        if item is None or item.const_value is not None or item.is_initializer() or shape_of(item) == ():
            continue
        node = item.producer()
        if node is None:
            return False
        pending += [source for source in node.inputs if source not in seen]
        seen.update(node.inputs)
    return True


def shape_of(value: ir.Value | None) -> tuple[int | None, ...] | None:
    """The known shape of a value, None for sizes that are not fixed."""
    if value is None:
        return None
    shape = value.const_value.shape if value.const_value is not None else value.shape
    if shape is not None:
        return tuple(size if isinstance(size, int) else None for size in shape)
    return _derived_shape(value)


def _derived_shape(value: ir.Value) -> tuple[int | None, ...] | None:
    """The shape by what computes the value, for scalars and for weights that are unpacked or transposed."""
    node = value.producer()
    if node is None:
        return None
    if node.op_type == "DynamicQuantizeLinear" and value.index() in (1, 2):
        return ()
    if node.op_type in _SAME_SHAPE:
        return shape_of(node.inputs[0])
    if node.op_type == "Transpose":
        shape = shape_of(node.inputs[0])
        order = node.attributes.get_ints("perm", None)
        return None if shape is None else tuple(shape[i] for i in order or reversed(range(len(shape))))
    scalars = node.op_type in ELEMENTWISE and all(shape_of(item) in ((), (1,)) for item in node.inputs)
    return () if scalars else None


def constant_ints(value: ir.Value | None) -> tuple[int, ...] | None:
    """The numbers of a small constant vector, None if it is none."""
    if value is None:
        return None
    tensor = onnx_file.ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.dtype.is_floating_point() or len(tensor.shape) > 1 or tensor.size > MAX_RANK:
        return None
    return tuple(int(number) for number in tensor.numpy().reshape(-1))


def int_attribute(node: ir.Node, name: str, default: int) -> int:
    """An integer attribute of a node."""
    return int(node.attributes.get_int(name, default))

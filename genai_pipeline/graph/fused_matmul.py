"""The load-time rewrite of com.microsoft::FusedMatMul into standard operators, for runtimes without that one.

FusedMatMul(A, B) = alpha * (A' @ B'), where A' and B' have their last two axes swapped if ``transA`` and ``transB`` say
so. Two matrices become one Gemm, which reads B as it lies; others Transpose, MatMul and Mul. A node with transposed
batch axes, or with an operand to be swapped whose rank is not known, stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.emitter import Emitter

if TYPE_CHECKING:
    import onnx_ir as ir

_KEEPS_RANK = frozenset({"Cast", "Add", "Mul", "Identity"})


def lower_fused_matmul(model: ir.Model) -> tuple[str, ...]:
    """Replace each FusedMatMul of the main graph that can be, in place; returns the outputs of those replaced."""
    graph = model.graph
    nodes = [node for node in graph if (node.domain, node.op_type) == ("com.microsoft", "FusedMatMul")]
    replaced = []
    for place, node in enumerate(nodes):
        made = _product(Emitter(graph, f"fused_matmul/{place}", before=node), node)
        if made is not None:
            replaced.append(_take_over(graph, node, made))
    return tuple(replaced)


def _product(emitter: Emitter, node: ir.Node) -> ir.Value | None:
    """What the node computes, in standard operators; None where it stays."""
    left, right = node.inputs
    if left is None or right is None or _number(node, "transBatchA", 0) or _number(node, "transBatchB", 0):
        return None
    swaps = {"transA": int(_number(node, "transA", 0)), "transB": int(_number(node, "transB", 0))}
    alpha = float(_number(node, "alpha", 1.0))
    ranks = (_rank(left), _rank(right))
    if ranks == (2, 2):
        return emitter.op("Gemm", left, right, alpha=alpha, **swaps)
    if any(swap and rank is None for swap, rank in zip(swaps.values(), ranks, strict=True)):
        return None
    operands = [
        _swapped(emitter, value, rank) if swap and rank is not None else value
        for value, rank, swap in zip((left, right), ranks, swaps.values(), strict=True)
    ]
    product = emitter.op("MatMul", *operands)
    if alpha == 1.0:
        return product
    factor = emitter.op("CastLike", emitter.constant(alpha, "float32"), product)
    return emitter.op("Mul", product, factor)


def _swapped(emitter: Emitter, value: ir.Value, rank: int) -> ir.Value:
    """The value with its last two axes swapped; a vector has none to swap."""
    if rank < 2:
        return value
    return emitter.op("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])


def _rank(value: ir.Value) -> int | None:
    """The rank of a value, from its shape or from what makes it; None where neither says."""
    if value.shape is not None:
        return len(value.shape)
    node = value.producer()
    if node is None:
        return None
    if node.op_type == "Flatten":
        return 2
    ranks = [_rank(source) for source in node.inputs if source is not None]
    if node.op_type == "Gather":
        data, picked = ranks
        return None if data is None or picked is None else data + picked - 1
    if "Normalization" in node.op_type:
        return ranks[0]
    if node.op_type in _KEEPS_RANK:
        known = [rank for rank in ranks if rank is not None]
        return max(known) if len(known) == len(ranks) else None
    return None


def _number(node: ir.Node, name: str, default: float) -> Any:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value


def _take_over(graph: ir.Graph, node: ir.Node, made: ir.Value) -> str:
    """Let ``made`` stand where the node's output stood, under its name; returns that."""
    old = node.outputs[0]
    name = str(old.name)
    made.shape, made.type = old.shape, old.type
    onnx_file.ir.convenience.replace_all_uses_with(old, made, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    old.name, made.name = f"{made.name}/before", name
    return name

"""The load-time rewrite that makes a graph compute only the logits asked for.

A decoder computes logits [b, S, V] from hidden states [b, S, H], though a run needs a few of the b*S rows. The
rewritten graph flattens the hidden states, gathers rows by an extra input ``logit_rows`` (int64 [n], indices into
b*S) before the head, and its logits output is [n, V]. Whether a graph can be rewritten is decided by structure: every
operator between the gather and the output must work on each position by itself (``position_wise``), so the rows
asked for are exactly those of the full result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.emitter import Emitter
from genai_pipeline.graph.position_wise import NotPositionWiseError, Step, is_position_wise, step_of
from genai_pipeline.graph.value_facts import is_free

if TYPE_CHECKING:
    import onnx_ir as ir

LOGIT_ROWS = "logit_rows"
_CONVERSIONS = frozenset({"Cast", "QuantizeLinear", "DequantizeLinear"})
_PICKS_POSITIONS = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """Whether the graph takes ``logit_rows`` now; if not, ``reason`` says why and the graph is unchanged."""

    rewritten: bool
    reason: str = ""


def rewrite_logit_rows(model: ir.Model, output: str) -> RewriteResult:
    """Rewrite ``model`` in place so that its logits output ``output`` [b, S, V] becomes [n, V] for asked-for rows.

    A graph that takes ``logit_rows`` already is left as it is and counts as rewritten.
    """
    logits = next((value for value in model.graph.outputs if value.name == output), None)
    if logits is None:
        return RewriteResult(False, f"the graph has no output '{output}'")
    if any(value.name == LOGIT_ROWS for value in model.graph.inputs):
        return _taken_already(model.graph, logits)
    try:
        _check_logits(logits)
        cone = _find_cone(model.graph, logits)
    except NotPositionWiseError as error:
        return RewriteResult(False, str(error))
    _rebuild(model.graph, logits, cone)
    return RewriteResult(True)


@dataclass(frozen=True, slots=True)
class _Cone:
    """The nodes between the gather and the logits in topological order, and the value whose rows are gathered."""

    steps: dict[ir.Node, Step]
    hidden: ir.Value
    leading: int  # axes of positions that ``hidden`` has: 2 for [b, S, H], 1 for [b*S, H]


def _taken_already(graph: ir.Graph, logits: ir.Value) -> RewriteResult:
    """The result for a graph with an input of our name: it must mean the same."""
    rows = next(value for value in graph.inputs if value.name == LOGIT_ROWS)
    shaped = rows.shape is None or len(rows.shape) == 1
    if rows.dtype == onnx_file.ir.DataType.INT64 and shaped and logits.shape is not None and len(logits.shape) == 2:
        return RewriteResult(True)
    return RewriteResult(False, f"the graph has an input '{LOGIT_ROWS}' of its own that is not int64 [n]")


def _check_logits(logits: ir.Value) -> None:
    """Refuse outputs that are not one row per position."""
    shape = logits.shape
    if shape is None or len(shape) != 3:
        have = "an unknown rank" if shape is None else f"rank {len(shape)}"
        raise NotPositionWiseError(f"the output '{logits.name}' has {have}; only [batch, tokens, vocabulary] has rows")
    if shape[1] == 1:
        raise NotPositionWiseError(f"the output '{logits.name}' has the logits of one position only")


def _find_cone(graph: ir.Graph, logits: ir.Value) -> _Cone:
    """Walk back from the logits, last node first, until one value is left below a head. Raises NotPositionWiseError.

    With several products over the same hidden states (a quantised product and its correction) the walk goes on
    until their branches meet, so nothing has to be known about the shapes of the branches.
    """
    order = {node: index for index, node in enumerate(graph)}
    open_values: dict[ir.Value, int] = {logits: 2}
    steps: list[tuple[ir.Node, Step]] = []
    below_head = False
    while not (below_head and len(open_values) == 1 and not _is_conversion(next(iter(open_values)))):
        latest = max(open_values, key=lambda value: order.get(value.producer(), -1))  # type: ignore[arg-type]
        node = latest.producer()
        if node is None or node not in order:
            raise NotPositionWiseError(f"no product with a head was found between '{latest.name}' and the logits")
        step = step_of(node, open_values.pop(latest))
        for value in step.inputs:
            if open_values.setdefault(value, step.leading) != step.leading:
                raise NotPositionWiseError(f"'{value.name}' is used with two meanings of its first axes")
        below_head = below_head or step.is_head
        steps.append((node, step))
    ((hidden, leading),) = open_values.items()
    _refuse_picked_positions(hidden)
    return _Cone(dict(reversed(steps)), hidden, leading)


def _is_conversion(value: ir.Value) -> bool:
    """Whether a value is made by a cast or a quantisation: rows are gathered before those.

    Runtimes fuse them with the product behind them, or drop pairs that meet; with a gather in between they would
    round where the unchanged graph does not.
    """
    node = value.producer()
    return node is not None and node.op_type in _CONVERSIONS and is_position_wise(node)


def _refuse_picked_positions(hidden: ir.Value) -> None:
    """Refuse hidden states that are a selection of positions: their rows are not the run's tokens."""
    value: ir.Value | None = hidden
    while value is not None and (node := value.producer()) is not None:
        if node.op_type in _PICKS_POSITIONS and not _is_lookup(node):
            raise NotPositionWiseError(f"{node.op_type} '{node.name}' has picked positions before the head already")
        value = node.inputs[0] if len(node.inputs) > 0 and _keeps_positions(node) else None


def _is_lookup(node: ir.Node) -> bool:
    """Whether a node reads rows of a weight: the embedding, which a chain of residual sums leads back to."""
    return is_free(node.inputs[0])


def _keeps_positions(node: ir.Node) -> bool:
    """Whether a node between the layers and the head passes its first input's positions on."""
    return "Normalization" in node.op_type or node.op_type in ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")


def _rebuild(graph: ir.Graph, logits: ir.Value, cone: _Cone) -> None:
    """Compute the picked rows beside the old nodes, make them the output, and drop what nobody reads any more."""
    ir_ = onnx_file.ir
    rows = ir_.Value(name=LOGIT_ROWS, shape=ir_.Shape(["logit_rows_count"]), type=ir_.TensorType(ir_.DataType.INT64))
    graph.inputs.append(rows)
    emitter = Emitter(graph, LOGIT_ROWS)
    flat = cone.hidden
    if cone.leading == 2:
        flat = emitter.node("", "Flatten", [flat], {"axis": ir_.AttrInt64("axis", 2)})
    picked = {cone.hidden: emitter.node("", "Gather", [flat, rows], {"axis": ir_.AttrInt64("axis", 0)})}
    for node, step in cone.steps.items():
        picked[node.outputs[0]] = step.redo(emitter, [picked[value] for value in step.inputs])
    result = picked[logits]
    name, assert_shape = logits.name, logits.shape
    assert assert_shape is not None
    logits.name = f"{LOGIT_ROWS}/all_{name}"
    result.name, result.type = name, logits.type
    result.shape = ir_.Shape(["logit_rows_count", assert_shape[2]])
    graph.outputs[list(graph.outputs).index(logits)] = result
    for node in reversed(cone.steps):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            graph.remove(node, safe=True)

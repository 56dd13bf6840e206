"""Checks every call of a host operation against its declaration: ports, parameters, and what is bound where.

What only a run knows (sizes, what is in a list) is checked by the operation itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from genai_pipeline.errors import OperationUnusableError
from genai_pipeline.graph.port_types import is_integer, literal_rank
from genai_pipeline.graph.scope import Read, Scope, StageNode
from genai_pipeline.graph.uses import below
from genai_pipeline.metadata.call_parameters import check_call
from genai_pipeline.metadata.expressions import ListExpr, Literal, Name
from genai_pipeline.metadata.model import Binding, OpCallSpec
from genai_pipeline.metadata.nodes import child_path
from genai_pipeline.metadata.operations import OPERATIONS, OperationInput, OperationSpec
from genai_pipeline.problems import Location, Problems, nearest, one_of

Bound = Mapping[str, Binding | tuple[Binding, ...]]
_POSITIONS = ("positions", "offset")  # what an operation that gives a loop's positions has to give


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an operation: what it takes and gives, and where that is written; ``prefix`` of its reads' ports."""

    op: str
    at: Location
    params: Mapping[str, Any]
    inputs: Bound
    outputs: Sequence[str] = ()
    prefix: str = ""
    in_body: bool = False

    @property
    def what(self) -> str:
        return f"the operation '{self.op}'"


def check_operations(root: Scope, problems: Problems) -> None:
    """Report everything about calls of operations that their declarations do not allow."""
    for scope in root.subtree():
        for node in scope.nodes:
            for call in _calls(node):
                spec = _declared(call, problems)
                if spec is not None:
                    _check_call(call, spec, node, problems)


def _calls(node: StageNode) -> Iterator[_Call]:
    stage = node.spec
    if stage.op is not None:
        in_body = any(scope.kind == "decode" for scope in node.scope.chain())
        yield _Call(stage.op, stage.at, stage.params, stage.inputs, tuple(stage.outputs), "", in_body)
    if stage.decode is not None and stage.decode.positions is not None:
        yield _inner_call(stage.decode.positions, "positions.", _POSITIONS)
    if stage.iterate is not None and stage.iterate.schedule is not None:
        yield _inner_call(stage.iterate.schedule, "schedule.", ())


def _inner_call(call: OpCallSpec, prefix: str, outputs: Sequence[str]) -> _Call:
    return _Call(call.op, call.at, call.params, call.inputs, outputs, prefix)


def _declared(call: _Call, problems: Problems) -> OperationSpec | None:
    """The operation's declaration; None if there is none, which is reported unless its name is only settled."""
    at = below(call.at, "op")
    if call.op not in OPERATIONS:
        hint = nearest(call.op, OPERATIONS)
        problems.error(at, "graph.unknown_operation", f"there is no operation '{call.op}'", hint)
        return None
    try:
        return OPERATIONS.get(call.op)  # None: what cannot run yet is a missing capability
    except OperationUnusableError as error:
        problems.error(at, "operation.unusable", error.message, error.hint)
        return None


def _check_call(call: _Call, spec: OperationSpec, node: StageNode, problems: Problems) -> None:
    check_call(call.what, call.params, spec.parameters, below(call.at, "with"), problems)
    _check_names(call, spec, problems)
    if call.in_body and not spec.in_body:
        why = "takes too long for" if spec.deterministic else "draws numbers, which must not depend on chunks, in"
        message = f"{call.what} {why} the body of a decode loop, which runs for every token"
        problems.error(below(call.at, "op"), "operation.in_body", message, "run it before or after the loop")
    for name, bound in call.inputs.items():
        port = spec.input(name)
        for binding in (bound if isinstance(bound, tuple) else (bound,)) if port is not None else ():
            _check_binding(call, port, binding, node, problems)


def _check_names(call: _Call, spec: OperationSpec, problems: Problems) -> None:
    """Unknown inputs and outputs, and inputs that are not bound."""
    kinds = (
        ("inputs", "operation.unknown_input", call.inputs, [port.name for port in spec.inputs]),
        ("outputs", "operation.unknown_output", call.outputs, [port.name for port in spec.outputs]),
    )
    for key, code, given, there in kinds:
        for name in given:
            if name not in there:
                place = below(call.at, key)
                at = replace(place, path=child_path(place.path, name))
                hint = nearest(name, there) or (f"it has {one_of(there)}" if there else "it has none")
                problems.error(at, code, f"{call.what} has no {key[:-1]} '{name}'", hint)
    for port in spec.inputs:
        if not port.optional and port.name not in call.inputs:
            message = f"{call.what} needs its input '{port.name}'"
            problems.error(below(call.at, "inputs"), "operation.missing_input", message, port.doc)


def _check_binding(
    call: _Call, port: OperationInput | None, binding: Binding, node: StageNode, problems: Problems
) -> None:
    """Kind, element type and rank of what is bound, as far as they are known."""
    assert port is not None
    fault = ""
    if isinstance(binding.expr, Name):
        reads = (read for read in node.reads if read.use.expr is binding.expr and read.name == binding.expr.text)
        read = next(reads, None)
        fault = _value_fault(port, read) if read is not None else ""
    elif not (port.many and isinstance(binding.expr, ListExpr)) and port.kind != "any":
        fault = _literal_fault(port, binding)
    if fault:
        message = f"the input '{port.name}' of {call.what} takes {_wanted(port)}; {fault}"
        problems.error(binding.at, "operation.input", message, port.doc)


def _value_fault(port: OperationInput, read: Read) -> str:
    """Why a value cannot go to a port, or the empty string."""
    value = read.value
    if port.kind == "any" or value.record:
        return ""
    if value.is_list and not port.many:
        return f"'{value.name}' is a list"
    if port.kind == "text":
        numbers = value.dtype is not None or value.type in ("number", "integer", "boolean", "tensor")
        return f"'{value.name}' is no text" if numbers else ""
    if value.type == "string":
        return f"'{value.name}' is text"
    if port.numbers == "integer" and value.dtype is not None and not _whole(value.dtype):
        return f"'{value.name}' is {value.dtype}"
    return "" if value.is_list or value.shape is None else _rank_fault(port, len(value.shape), f"'{value.name}'")


def _literal_fault(port: OperationInput, binding: Binding) -> str:
    """Why what is written out cannot go to a port, or the empty string."""
    if isinstance(binding.expr, Literal) and isinstance(binding.expr.value, str):
        return "" if port.kind == "text" else f"{binding.text} is text"
    rank = literal_rank(binding.expr)
    if rank is None:
        return ""
    return f"{binding.text} is no text" if port.kind == "text" else _rank_fault(port, rank, binding.text)


def _rank_fault(port: OperationInput, rank: int, what: str) -> str:
    return "" if port.rank is None or rank in (port.rank, port.rank - 1) else f"{what} has rank {rank}"


def _wanted(port: OperationInput) -> str:
    if port.kind == "text":
        return "a text"
    numbers = "whole numbers" if port.numbers == "integer" else "numbers"
    return numbers if port.rank is None else f"{numbers} of rank {port.rank}"


def _whole(dtype: str) -> bool:
    return is_integer(dtype) or dtype == "bool"

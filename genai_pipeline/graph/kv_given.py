"""State that starts as what another component gave (``from``): which outputs a tensor takes, and whether they fit.

A state that is written once takes the outputs that ``present`` names; any other, and one without ``present``, those
with the names of its past ports.
"""

from __future__ import annotations

from collections.abc import Sequence

from genai_pipeline.graph.kv_axes import BATCH, LENGTH
from genai_pipeline.graph.kv_ports import StatePort
from genai_pipeline.graph.scope import Read, Scope, StageNode
from genai_pipeline.graph.signature import GraphSignature, Port
from genai_pipeline.graph.uses import STATE_PREFIX, below, named
from genai_pipeline.metadata.model import KvSpec
from genai_pipeline.problems import Problems, nearest, one_of

_TAKES = ("fixed", "replace")  # updates whose state can start as something


def given_port(
    kv: KvSpec, port: StatePort, giver: GraphSignature, shape: Sequence[int | str], problems: Problems
) -> Port | None:
    """The output of ``giver`` that a state tensor of the named ``shape`` starts as, or None with a problem."""
    at = below(kv.at, "from")
    if kv.update not in _TAKES:
        message = f"state with update: {kv.update} starts empty and takes none from '{kv.source}'"
        problems.error(at, "kv.from", message, "fixed and replace do")
        return None
    written = port.present.name if port.present is not None and kv.update == "fixed" else port.past.name
    found = giver.outputs.get(written) or giver.outputs.get(port.past.name)
    if found is None:
        hint = nearest(written, giver.outputs) or f"it gives {one_of(giver.outputs)}"
        problems.error(at, "kv.from", f"'{kv.source}' has no output '{written}' for '{port.past.name}'", hint)
        return None
    free = [index for index, axis in enumerate(shape) if axis in (BATCH, LENGTH)]
    fault = port_fault(port.past, found, free)
    if fault or found.dtype != port.past.dtype:
        fault = fault or f"{port.past.dtype} and {found.dtype}"
        message = f"'{port.past.name}' and '{found.name}' of '{kv.source}' do not fit each other: {fault}"
        problems.error(at, "kv.from", message)
    return found


def fixed_length(kv: KvSpec, shape: Sequence[int | str], *ports: Port | None) -> int | None:
    """The length of a state that is written once, where one of its ports fixes it."""
    if kv.update != "fixed" or LENGTH not in shape:
        return None
    axis = list(shape).index(LENGTH)
    known = [port.shape[axis] for port in ports if port is not None and port.shape and len(port.shape) == len(shape)]
    return next((dim for dim in known if isinstance(dim, int)), None)


def port_fault(one: Port, two: Port, free_axes: Sequence[int] = ()) -> str:
    """How two ports for one tensor differ, or the empty string."""
    if one.dtype != two.dtype and not free_axes:
        return f"{one.dtype} and {two.dtype}"
    if one.shape is None or two.shape is None:
        return ""
    if len(one.shape) != len(two.shape):
        return f"rank {len(one.shape)} and rank {len(two.shape)}"
    for axis, (left, right) in enumerate(zip(one.shape, two.shape, strict=True)):
        if axis not in free_axes and isinstance(left, int) and isinstance(right, int) and left != right:
            return f"axis {axis} is {left} and {right}"
    return ""


def link_given(root: Scope, given: dict[str, dict[str, tuple[str, ...]]], problems: Problems) -> None:
    """Let stages read the very outputs that their state starts as, in place of "the state of" a component.

    ``given``: component -> component named by ``from`` -> outputs that are taken from it. The names are
    ``state:COMPONENT.OUTPUT``.
    """
    for scope in root.subtree():
        for node in scope.nodes:
            takes = given.get(node.spec.run or "", {})
            node.reads = [new for read in node.reads for new in _linked(node, read, takes, problems)]


def _linked(node: StageNode, read: Read, takes: dict[str, tuple[str, ...]], problems: Problems) -> list[Read]:
    """A read of a component's state as reads of what is taken of it; any other as it is."""
    source = read.name.removeprefix(STATE_PREFIX)
    if source == read.name or source not in takes:
        return [read]
    maker = next(other for other in read.owner.nodes if other.id == read.value.producer)
    if maker.items is not None:
        message = f"stage '{node.id}' takes the state of '{source}', which runs once for each item of a list"
        problems.error(read.use.at, "kv.from", message, "put both in one group: for_each with a body")
    elif read.owner is node.scope and node.scope.kind == "decode":
        message = f"stage '{node.id}' takes the state of '{source}', which runs in every step beside it"
        problems.error(read.use.at, "kv.from", message, f"run '{source}' before the loop")
    return [
        Read(named(f"{read.name}.{port}", read.use.port, read.use.at), f"{read.name}.{port}", value, read.owner)
        for port in takes[source]
        if (value := maker.outputs.get(port)) is not None
    ]


__all__ = ["fixed_length", "given_port", "link_given", "port_fault"]

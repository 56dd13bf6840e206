"""The small graphs of a workflow that choose, count and update: told from networks, and checked for what they do.

A graph without matrices of weights is such a policy, unless it makes rows of a request for a network. Those that only
count (masks, positions, lengths, ends) are what a decode loop does by itself. One that reads logits must choose tokens
or pick rows: anything else would change the answer, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from genai_pipeline.graph.onnx_file import read_outline
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.ports import FLOATS
from genai_pipeline.importers.workflow.document import DOCUMENT
from genai_pipeline.importers.workflow.steps import Program

if TYPE_CHECKING:
    import onnx

_FLOATS = frozenset({1, 10, 11, 16})  # TensorProto.DataType: float32, float16, float64, bfloat16
_QUANTISED = frozenset({2, 3, 17, 21, 22})  # uint8, int8, float8, uint4, int4
_MATRIX = 2
_ROWS_RANK = 3
# Nodes that pick or move numbers and never change them.
_MOVES = frozenset({"Gather", "GatherND", "GatherElements", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Flatten"})
_MOVES |= {"Cast", "Identity"}
_CHOICE = "ArgMax"
_SAMPLER = "onnx-genai.token-sampler"


def is_policy(folder: SourceFolder, file: str) -> bool:
    """Whether a graph has no matrix of weights. Raises GraphFileError."""
    graph = read_outline(folder.path / file, folder.path).graph
    kinds = _FLOATS | _QUANTISED
    return not any(tensor.data_type in kinds and len(tensor.dims) >= _MATRIX for tensor in graph.initializer)


def readers_of_requests(
    folder: SourceFolder, program: Program, policies: Mapping[str, str], networks: Mapping[str, str]
) -> frozenset[str]:
    """Graphs without weights that are networks all the same: they read what a request gives, and a network reads the
    rows [batch, rows, width] that they make of it. Nothing that a network gave may reach them."""
    taken = {
        value
        for call in program.invokes
        for port, value in call.inputs.items()
        if call.component in networks and _is_rows(folder, networks[call.component], port)
    }
    given = _given(program, networks)
    found: set[str] = set()
    for call in program.invokes:
        if call.component in policies and given.isdisjoint(call.inputs.values()):
            file = policies[call.component]
            rows = (value for port, value in call.outputs.items() if _is_rows(folder, file, port))
            found.update({call.component} if not taken.isdisjoint(rows) else ())
    return frozenset(found)


def _given(program: Program, networks: Mapping[str, str]) -> set[str]:
    """Values that networks gave, those that were made of them, and what loops carry of either."""
    given: set[str] = set()
    for _ in range(len(program.invokes) + 1):
        known = len(given)
        for call in program.invokes:
            if call.component in networks or not given.isdisjoint(call.inputs.values()):
                given.update(call.outputs.values())
        given.update(cell for cell, value in program.carried.items() if value in given)
        if len(given) == known:
            break
    return given


def _is_rows(folder: SourceFolder, file: str, port: str) -> bool:
    signature = folder.signature(file)
    found = signature.inputs.get(port) or signature.outputs.get(port)
    return found is not None and found.dtype in FLOATS and len(found.shape or ()) == _ROWS_RANK


def check_policies(
    folder: SourceFolder,
    program: Program,
    policies: Mapping[str, str],
    logits: frozenset[str],
    samplers: frozenset[str],
    report: ImportReport,
) -> None:
    """Report every policy. ``policies``: component -> file; ``logits``: values that are logits; ``samplers``: those
    whose declared contract is to choose tokens."""
    found = set(logits)
    changed: dict[str, tuple[str, set[str]]] = {}
    for _ in range(len(program.invokes) + 1):  # what a loop carries comes back in calls that were already looked at
        known = len(found)
        found.update(cell for cell, value in program.carried.items() if value in found)
        for call in program.invokes:
            ports = {port for port, value in call.inputs.items() if value in found}
            if call.component not in policies or call.component in samplers or not ports:
                continue
            rows, changes = _follow(read_outline(folder.path / policies[call.component], folder.path).graph, ports)
            found.update(value for port, value in call.outputs.items() if port in rows)
            if changes:
                changed[call.at] = (call.component, changes)
        if len(found) == known:
            break
    for at, (component, changes) in changed.items():
        why = f"'{component}' changes the logits ({', '.join(sorted(changes))})"
        report.refused(DOCUMENT, at, why, "options of generation are given with requests or under generation:")
    for name, file in policies.items():
        why = "chooses tokens, as the loop does" if name in samplers else "counts and updates, as the loop does"
        report.dropped(DOCUMENT, f"pipeline.workflow.components.{name}", f"{file}: {why}")


def _follow(graph: onnx.GraphProto, ports: set[str]) -> tuple[set[str], set[str]]:
    """Where the numbers of some inputs go: the values that have them unchanged, and the nodes that change them."""
    rows, changes = set(ports), set()
    for node in graph.node:
        if rows.isdisjoint(node.input) or node.op_type in ("Shape", _CHOICE):
            continue
        if node.op_type in _MOVES:
            rows.update(node.output)
        else:
            changes.add(node.op_type)
    return rows, changes


def samplers_of(components: Mapping[str, str | None]) -> frozenset[str]:
    """Components whose contract (by component) is to choose tokens."""
    return frozenset(name for name, contract in components.items() if contract == _SAMPLER)

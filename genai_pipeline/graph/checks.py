"""Checks of the scope graphs: cycles, what a decode loop needs, what lists and outputs may be.

Each reports everything it finds; names that mean nothing were reported when they were resolved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import networkx as nx

from genai_pipeline.graph.expression_checks import check_expressions
from genai_pipeline.graph.liveness import Live, check_components, check_unused
from genai_pipeline.graph.scope import Read, Scope, StageNode
from genai_pipeline.graph.scopes import CHOICE, stage_node
from genai_pipeline.graph.values import DECODE_VALUES, Value
from genai_pipeline.metadata.expressions import Name
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.problems import Location, Problems

_RESERVED = {
    "decode": frozenset({field[0] for field in DECODE_VALUES} | {"next_token", "row"}),
    "iterate": frozenset({"step", "timestep", "sigma", "item"}),
}
_MEDIA = frozenset({"image", "audio", "video", "vector", "tensor"})


def check_scopes(
    root: Scope,
    graphs: Mapping[str, nx.DiGraph[str]],
    spec: PackageSpec,
    live: Live,
    refused: Collection[str],
    problems: Problems,
) -> None:
    """Report every structural problem of a package; ``refused`` are the paths of errors found before."""
    for scope in root.subtree():
        _check_cycles(scope, graphs[scope.id], problems)
        for node in scope.nodes:
            _check_stage(node, problems)
    _check_outputs(root, spec, problems)
    check_expressions(root, spec, problems)
    check_components(root, spec, problems)
    if any(path.startswith("components.") for path in refused):
        return  # who can say what a graph that nobody has seen depends on
    if not any(problem.code.startswith("graph.") and problem.severity == "error" for problem in problems):
        check_unused(root, spec, live, problems)


def _check_cycles(scope: Scope, graph: nx.DiGraph[str], problems: Problems) -> None:
    order = {stage_node(node.id): index for index, node in enumerate(scope.nodes)}
    for component in nx.strongly_connected_components(graph):
        stages = sorted((name for name in component if name in order), key=order.__getitem__)
        if not stages or (len(component) == 1 and not graph.has_edge(stages[0], stages[0])):
            continue
        start = CHOICE if CHOICE in component else stages[0]
        path = [edge[0] for edge in nx.find_cycle(graph.subgraph(component), start)]
        at = scope.nodes[order[stages[0]]].spec.at
        if CHOICE in path:
            _report_early(graph, path, at, problems)
        else:
            _report_cycle(graph, path, at, problems)


def _report_cycle(graph: nx.DiGraph[str], path: list[str], at: Location, problems: Problems) -> None:
    labels = [str(graph.nodes[name]["label"]) for name in path]
    stages = [
        f"stage '{label}'" if name.startswith("stage:") else label for name, label in zip(path, labels, strict=True)
    ]
    way = " -> ".join([*stages, stages[0]])
    hint = "only what a loop carries goes back: carry: {name: {initial: ..., next: ...}}"
    problems.error(at, "graph.cycle", f"the data flow has a cycle: {way}", hint)


def _report_early(graph: nx.DiGraph[str], path: list[str], at: Location, problems: Problems) -> None:
    stages = [f"'{graph.nodes[name]['label']}'" for name in path if name.startswith("stage:")]
    problems.error(
        at,
        "graph.next_token_early",
        f"loop.next_token is read by {', '.join(stages)}, from which the token is chosen",
        "the last step's token is in loop.tokens; loop.next_token is there once the token is chosen",
    )


def _check_stage(node: StageNode, problems: Problems) -> None:
    stage = node.spec
    for port, binding in (stage.guide.negative if stage.guide else {}).items():
        if port not in stage.inputs:
            message = f"guide.negative gives '{port}', which the stage's inputs do not"
            problems.error(binding.at, "graph.guide_port", message, "name a port that is under inputs:")
    for read in node.reads:
        if read.use.port == "for_each" and read.value.type not in ("list", "unknown"):
            message = f"for_each needs a list; '{read.name}' is a {read.value.type}"
            problems.error(read.use.at, "graph.not_a_list", message, "declare the input with list: true or max_items")
    _check_carried_names(node, problems)
    if stage.decode is not None:
        _check_decode(node, problems)


def _check_carried_names(node: StageNode, problems: Problems) -> None:
    loop = node.spec.decode or node.spec.iterate
    for name, carry in (loop.carry if loop else {}).items():
        if name in _RESERVED[node.spec.kind]:
            message = f"loop.{name} is published by the loop itself and cannot be carried"
            problems.error(carry.at, "graph.two_producers", message, "carry it under another name")


def _check_decode(node: StageNode, problems: Problems) -> None:
    decode, body = node.spec.decode, node.body
    assert decode is not None
    assert body is not None
    if (decode.logits is None) == (decode.tokens is None):
        message = "a decode loop ends a step in logits: (the engine chooses) or in tokens: (the body has chosen)"
        problems.error(decode.at, "graph.decode_result", message, "give exactly one of them")
    if decode.prompt is None and decode.prompt_template is None:
        problems.error(decode.at, "graph.prompt", "the decode loop has no prompt", "e.g. prompt: prompt.tokens")
    for read in body.ends:
        if read.use.port in ("logits", "tokens") and (read.owner is not body or read.value.producer is None):
            message = f"{read.use.port}: '{read.name}' is not made by a stage of the loop's body"
            problems.error(read.use.at, "graph.decode_result", message, "name an output of a stage in body:")
    for read in node.reads:
        if read.use.port == "prompt" and isinstance(read.use.expr, Name):
            _check_prompt(read, problems)


def _check_prompt(read: Read, problems: Problems) -> None:
    value = read.value
    if value.origin == "parameter" or value.record:
        return  # a slot of a template; a whole input is reported as such
    integers = value.dtype is None or value.dtype.startswith(("int", "uint"))
    if value.type not in ("tensor", "list", "unknown") or not integers:
        what = "text" if value.type == "string" else value.dtype or value.type
        owner = read.name.rpartition(".")[0]
        hint = f"did you mean '{owner}.tokens'?" if value.type == "string" else "a prompt is whole numbers"
        problems.error(read.use.at, "graph.prompt", f"the prompt needs tokens; '{read.name}' is {what}", hint)


def _check_outputs(root: Scope, spec: PackageSpec, problems: Problems) -> None:
    for read in root.ends:
        name = read.use.port.removeprefix("outputs.")
        output = spec.outputs.get(name) if read.use.port.startswith("outputs.") else None
        if output is None or (fault := _modality_fault(output.modality, read.value)) is None:
            continue
        owner, _, field = read.name.rpartition(".")
        hint = f"did you mean '{owner}.text'?" if output.modality == "text" and field == "tokens" else ""
        message = f"the {output.modality} output '{name}' reads '{read.name}', which is {fault}"
        problems.error(output.at, "graph.output_modality", message, hint)


def _modality_fault(modality: str, value: Value) -> str | None:
    """What is wrong with giving ``value`` as ``modality``, or None."""
    if modality == "text" and (value.dtype is not None or value.type in ("integer", "number", "boolean", "tensor")):
        return "no text but " + (f"{value.dtype} numbers" if value.dtype else f"a {value.type}")
    if modality in _MEDIA and value.type == "string":
        return "text"
    return None

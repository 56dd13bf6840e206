"""Compiles a package: scopes, checks, graphs' own signatures, state geometry, and at the end the frozen plan.

Every step reports all it finds, also when an earlier one failed: a missing ONNX file does not hide a cycle. A plan is
only made when nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from genai_pipeline.graph.assembly import Assembler
from genai_pipeline.graph.capabilities import check_capabilities
from genai_pipeline.graph.checks import check_scopes
from genai_pipeline.graph.component_files import ComponentFiles, read_components
from genai_pipeline.graph.data_files import data_in_files
from genai_pipeline.graph.edges import Component
from genai_pipeline.graph.kv_geometry import resolve_state
from genai_pipeline.graph.kv_given import link_given
from genai_pipeline.graph.linking import state_sources
from genai_pipeline.graph.liveness import Live, find_live
from genai_pipeline.graph.operation_checks import check_operations
from genai_pipeline.graph.plan import ComponentPlan, ExecutionPlan, StatePlan
from genai_pipeline.graph.ports import check_ports
from genai_pipeline.graph.random_checks import check_random_nodes
from genai_pipeline.graph.scope import Scope
from genai_pipeline.graph.scopes import build_scopes, scope_graphs
from genai_pipeline.graph.uses import below
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.metadata.places import placed
from genai_pipeline.problems import Problem, Problems, nearest, sort_problems


def compile_package(
    spec: PackageSpec, reported: Sequence[Problem] = ()
) -> tuple[ExecutionPlan | None, tuple[Problem, ...]]:
    """The plan of a package and every problem found; no plan when one of them is an error.

    ``reported`` are problems found before: a file among them is not read, and an error among them means no plan.
    """
    problems = Problems()
    refused = frozenset(problem.at.path for problem in reported if problem.severity == "error")
    files = read_components(spec, refused, problems)
    root = build_scopes(spec, {name: component.first for name, component in files.items()}, problems)
    states = _states(spec, files, problems)
    link_given(root, _given(states), problems)
    graphs = scope_graphs(root, spec)
    live = find_live(root)
    check_operations(root, problems)
    check_scopes(root, graphs, spec, live, refused, problems)
    needed = check_capabilities(root, spec, problems)
    _check_components_exist(root, spec, refused, problems)
    check_random_nodes(root, spec, files, problems)
    check_ports(root, _with_state(spec, files, states), problems, data_in_files(spec))
    found = sort_problems(placed(problems, spec.places))
    if problems.failed or refused:
        return None, found
    components = _components(spec, files, states, _used_components(root, spec, live))
    return (
        ExecutionPlan(
            package=spec,
            graph=graphs[""],
            scopes=graphs,
            root=Assembler(graphs, live, components).scope_plan(root),
            components=components,
            outputs=_outputs(root),
            capabilities=needed,
            facts={
                "left_out": tuple(sorted(_left_out(root, live))),
                "vocab_sizes": _vocab_sizes(root),
                "segments": _segments(root),
            },
        ),
        found,
    )


def _check_components_exist(root: Scope, spec: PackageSpec, refused: frozenset[str], problems: Problems) -> None:
    """Report stages that run what is not there, unless the layer of references has done so."""
    for scope in root.subtree():
        for node in scope.nodes:
            at, name = below(node.spec.at, "run"), node.spec.run
            if name is not None and name not in spec.components and at.path not in refused:
                hint = nearest(name, spec.components)
                problems.error(at, "reference.component", f"there is no component '{name}'", hint)


def _states(
    spec: PackageSpec, files: Mapping[str, ComponentFiles], problems: Problems
) -> dict[str, tuple[StatePlan, ...]]:
    """The resolved state of every component whose graph could be read."""
    firsts = {name: component.first for name, component in files.items()}
    return {
        name: resolve_state(spec.components[name], component.first, problems, component.later, firsts)
        for name, component in files.items()
    }


def _given(states: Mapping[str, tuple[StatePlan, ...]]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Component -> component that its state comes from -> outputs that it starts as."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, plans in states.items():
        for plan in plans:
            if plan.source is not None:
                taken = tuple(tensor.given for tensor in plan.tensors if tensor.given is not None)
                source = found.setdefault(name, {})
                owner = plan.source.partition(".")[0]
                source[owner] = tuple(dict.fromkeys((*source.get(owner, ()), *taken)))
    return found


def _with_state(
    spec: PackageSpec, files: Mapping[str, ComponentFiles], states: Mapping[str, tuple[StatePlan, ...]]
) -> dict[str, Component]:
    """What the checks of ports need of every component whose graph could be read."""
    return {
        name: Component(spec.components[name], component.first, states[name], component.later)
        for name, component in files.items()
    }


def _components(
    spec: PackageSpec,
    files: Mapping[str, ComponentFiles],
    states: Mapping[str, tuple[StatePlan, ...]],
    used: frozenset[str],
) -> dict[str, ComponentPlan]:
    found = {}
    for name, component in spec.components.items():
        if name not in used:
            continue
        tensors = [(state, tensor) for state in states.get(name, ()) for tensor in state.tensors]
        found[name] = ComponentPlan(
            spec=component,
            model=component.model or "",
            model_later=component.model_later,
            signature=files[name].joined,
            states=states.get(name, ()),
            bytes_per_token=sum(tensor.bytes_per_token for state, tensor in tensors if state.grows),
            bytes_fixed=sum(tensor.bytes_per_token for _, tensor in tensors if not tensor.has_length),
        )
    return found


def _used_components(root: Scope, spec: PackageSpec, live: Live) -> frozenset[str]:
    run = {node.spec.run for node in live.stages if node.spec.run is not None}
    sources = {source for name in run for source in state_sources(spec.components[name])}
    return frozenset(run | sources)


def _outputs(root: Scope) -> dict[str, str]:
    """Declared output -> key of the value it is read from."""
    ends = (
        (read.use.port.removeprefix("outputs."), read) for read in root.ends if read.use.port.startswith("outputs.")
    )
    return {name: read.value.key for name, read in ends if "." not in name}


def _segments(root: Scope) -> dict[str, str]:
    """Declared text output -> key of its timed segments."""
    ends = ((read.use.port.split("."), read) for read in root.ends)
    return {parts[1]: read.value.key for parts, read in ends if parts[0] == "outputs" and parts[2:] == ["segments"]}


def _left_out(root: Scope, live: Live) -> Iterator[str]:
    for scope in root.subtree():
        yield from (f"{scope.prefix}{node.id}" for node in scope.nodes if node not in live.stages)


def _vocab_sizes(root: Scope) -> dict[str, int]:
    """Size of the logits' last axis by path of the decode loop, where the graph fixes it."""
    found = {}
    for scope in root.subtree():
        for read in scope.ends:
            shape = read.value.shape
            if read.use.port == "logits" and scope.stage is not None and shape and isinstance(shape[-1], int):
                found[scope.id] = shape[-1]
    return found

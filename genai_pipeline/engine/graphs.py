"""The graphs of a package, loaded through a backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from genai_pipeline.backends.placement import GraphPlacement
from genai_pipeline.backends.protocol import Backend, CompiledStore, LoadedGraph, LoadRequest
from genai_pipeline.config import LoadOptions
from genai_pipeline.engine.graph_pair import GraphPair
from genai_pipeline.engine.node_times import NodeTimes
from genai_pipeline.errors import ProviderUnavailableError
from genai_pipeline.graph.plan import ComponentPlan, ExecutionPlan, ScopePlan


def load_graphs(
    plan: ExecutionPlan,
    backend: Backend,
    options: LoadOptions,
    resources: ExitStack,
    times: NodeTimes | None = None,
    store: CompiledStore | None = None,
) -> dict[str, LoadedGraph]:
    """Every component's graph; ``resources`` closes them. ``times``: where profiles of their nodes go; ``store``: keeps
    what providers compile.

    Raises BackendError or PackageError.
    """
    logits = dict(logits_ports(plan.root))
    asked = options.providers
    graphs: dict[str, LoadedGraph] = {}
    for name, component in plan.components.items():
        request = _load_request(plan, component, logits.get(name), () if asked is None else asked.of(name))
        profile = None if times is None else times.beginning(name)
        request = replace(request, profile=profile, store=store)
        graphs[name] = _load(backend, request, component)
        resources.callback(graphs[name].close)
    return graphs


def _load(backend: Backend, request: LoadRequest, component: ComponentPlan) -> LoadedGraph:
    """The graph of a component, or both of them."""
    if component.model_later is None:
        return backend.load(request)
    first, later = _load_both(backend, request, component.model_later)
    if first.logit_rows != later.logit_rows:
        # only one of them can give the rows that are asked for alone: both give all
        first.close()
        later.close()
        first, later = _load_both(backend, replace(request, logits=None), component.model_later)
    return GraphPair(first, later)


def _load_both(backend: Backend, request: LoadRequest, later: str) -> tuple[LoadedGraph, LoadedGraph]:
    """The graph of first runs, which the request names, and that of later ones."""
    with ExitStack() as undo:
        first = backend.load(request)
        undo.callback(first.close)
        second = backend.load(replace(request, path=str(Path(request.root) / later)))
        undo.pop_all()
    return first, second


def placements(plan: ExecutionPlan, graphs: Mapping[str, LoadedGraph], version: str) -> tuple[GraphPlacement, ...]:
    """What each graph of a package runs on; ``version``: of the backend's runtime."""
    return tuple(
        GraphPlacement.of(
            loaded,
            package=plan.package.name,
            component=name,
            model=model,
            version=version,
            passed_over=chosen.passed_over if (chosen := plan.components[name].spec.chosen) is not None else (),
        )
        for name, graph in graphs.items()
        for model, loaded in _files(plan.components[name], graph)
    )


def _files(component: ComponentPlan, graph: LoadedGraph) -> Iterator[tuple[str, LoadedGraph]]:
    """The files of a component, and what is loaded of each."""
    if isinstance(graph, GraphPair) and component.model_later is not None:
        yield component.model, graph.first
        yield component.model_later, graph.later
    else:
        yield component.model, graph


def logits_ports(scope: ScopePlan) -> Iterator[tuple[str, str]]:
    """(component, port) of every output that a decode loop chooses tokens from."""
    for stage in scope.stages:
        if stage.body is None or stage.spec.decode is None or stage.spec.decode.logits is None:
            continue
        key = stage.body.reads[stage.spec.decode.logits]
        for inner in stage.body.stages:
            for port, produced in inner.outputs.items():
                if produced == key and inner.spec.run is not None:
                    yield inner.spec.run, port


def _load_request(
    plan: ExecutionPlan, component: ComponentPlan, logits: str | None, asked: Sequence[str]
) -> LoadRequest:
    root, session = component.spec.root or plan.package.root, component.spec.session
    declared = session.providers if session is not None else ()
    chosen = component.spec.chosen
    if chosen is not None and not chosen.runs:
        message = f"no variant of the component '{component.spec.name}' runs here: {chosen.reason}"
        raise ProviderUnavailableError(message, hint="ask for other providers, or add a variant for any of them")
    provider_options = session.provider_options if session is not None else {}
    return LoadRequest(
        component=component.spec.name,
        path=str(root / component.model),
        root=str(root),
        logits=logits,
        providers=chosen.providers if chosen is not None else tuple(asked) or declared,
        providers_required=len(asked) == 1,
        provider_options=tuple((name, tuple(settings.items())) for name, settings in provider_options.items()),
        config=tuple(session.config.items()) if session is not None else (),
    )

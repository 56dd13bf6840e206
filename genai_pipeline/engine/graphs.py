"""The graphs of a package, loaded through a backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from genai_pipeline.backends.placement import GraphPlacement
from genai_pipeline.backends.protocol import Backend, LoadedGraph, LoadRequest
from genai_pipeline.config import LoadOptions
from genai_pipeline.errors import ProviderUnavailableError
from genai_pipeline.graph.plan import ComponentPlan, ExecutionPlan, ScopePlan


def load_graphs(
    plan: ExecutionPlan, backend: Backend, options: LoadOptions, resources: ExitStack
) -> dict[str, LoadedGraph]:
    """Every component's graph; ``resources`` closes them. Raises BackendError or PackageError."""
    logits = dict(logits_ports(plan.root))
    asked = options.providers
    graphs: dict[str, LoadedGraph] = {}
    for name, component in plan.components.items():
        graphs[name] = backend.load(
            _load_request(plan, component, logits.get(name), () if asked is None else asked.of(name))
        )
        resources.callback(graphs[name].close)
    return graphs


def placements(plan: ExecutionPlan, graphs: Mapping[str, LoadedGraph], version: str) -> tuple[GraphPlacement, ...]:
    """What each graph of a package runs on; ``version``: of the backend's runtime."""
    return tuple(
        GraphPlacement.of(
            graph,
            package=plan.package.name,
            component=name,
            model=plan.components[name].model,
            version=version,
            passed_over=chosen.passed_over if (chosen := plan.components[name].spec.chosen) is not None else (),
        )
        for name, graph in graphs.items()
    )


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

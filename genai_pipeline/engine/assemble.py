"""Puts an engine together from a plan: loaded graphs, state pools, decode loops and a scheduler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from genai_pipeline.backends.protocol import Backend, LoadedGraph, LoadRequest
from genai_pipeline.config import DEFAULT_CONTEXT, LoadOptions
from genai_pipeline.engine.decode_loop import DecodeLoop, LoopRules
from genai_pipeline.engine.engine import Engine
from genai_pipeline.errors import OptionError, PackageError
from genai_pipeline.graph.plan import ComponentPlan, ExecutionPlan, ScopePlan, StagePlan, StatePlan
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.metadata.expressions import evaluate, names
from genai_pipeline.metadata.model import Binding, PackageSpec
from genai_pipeline.preprocess.detokenizer import make_detokenizer
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.scheduler.scheduler import Budget, Scheduler

MAX_ROWS = 1


@dataclass(frozen=True, slots=True)
class Assembly:
    """An engine and what it stands on; ``close`` frees all of it."""

    engine: Engine
    graphs: Mapping[str, LoadedGraph]
    pools: Mapping[str, KvPool]
    context_length: int

    def close(self) -> None:
        """Stop the engine, then free states and graphs."""
        self.engine.close()
        for pool in self.pools.values():
            pool.close()
        for graph in self.graphs.values():
            graph.close()


def assemble(
    plan: ExecutionPlan, backend: Backend, tokenizers: Mapping[str, Tokenizer], options: LoadOptions
) -> Assembly:
    """Load every component and start the engine. Raises BackendError or OptionError."""
    context = context_length(plan.package, options)
    logits = dict(_logits_ports(plan.root))
    graphs = {
        name: backend.load(_load_request(plan, component, logits.get(name), options))
        for name, component in plan.components.items()
    }
    pools: dict[str, KvPool] = {}
    loops: dict[str, DecodeLoop] = {}
    for stage in plan.root.stages:
        pools[stage.id] = KvPool(_states(plan, stage), max_rows=MAX_ROWS, capacity=context)
        rules = _rules(plan, stage, tokenizers, context)
        loops[stage.id] = DecodeLoop(stage, graphs, pools[stage.id], rules)
    scheduler = Scheduler(Budget(MAX_ROWS, options.prefill_chunk))
    return Assembly(Engine(plan, loops, scheduler), graphs, pools, context)


def context_length(package: PackageSpec, options: LoadOptions) -> int:
    """Most tokens of a sequence: the package's limit, lowered by the caller if asked."""
    limits = package.limits
    declared = _number(limits.context_length if limits else None) or DEFAULT_CONTEXT
    asked = options.context_length
    if asked is not None and asked > declared:
        raise OptionError(f"context_length is {asked}; this package holds {declared}", param="context_length")
    return asked or declared


def _number(binding: Binding | None) -> int | None:
    """A limit as a number. Raises PackageError when only a request could tell it."""
    if binding is None:
        return None
    if names(binding.expr):
        raise PackageError(
            f"{binding.at.path} is '{binding.text}', which depends on the request",
            hint="give the context as a number, and bound a request's own values by their declaration",
        )
    return int(evaluate(binding.expr, lambda name: None))


def _logits_ports(scope: ScopePlan) -> Iterator[tuple[str, str]]:
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
    plan: ExecutionPlan, component: ComponentPlan, logits: str | None, options: LoadOptions
) -> LoadRequest:
    root, session = plan.package.root, component.spec.session
    declared = session.providers if session is not None else ()
    provider_options = session.provider_options if session is not None else {}
    return LoadRequest(
        component=component.spec.name,
        path=str(root / component.model),
        root=str(root),
        logits=logits,
        providers=options.providers or declared or ("cpu",),
        providers_required=options.providers is not None and len(options.providers) == 1,
        provider_options=tuple((name, tuple(settings.items())) for name, settings in provider_options.items()),
        config=tuple(session.config.items()) if session is not None else (),
    )


def _states(plan: ExecutionPlan, stage: StagePlan) -> dict[str, tuple[StatePlan, ...]]:
    assert stage.body is not None
    names = {inner.spec.run for inner in stage.body.stages if inner.spec.run is not None}
    return {name: plan.components[name].states for name in sorted(names)}


def _rules(plan: ExecutionPlan, stage: StagePlan, tokenizers: Mapping[str, Tokenizer], context: int) -> LoopRules:
    decode = stage.spec.decode
    assert decode is not None
    tokenizer = tokenizers.get(decode.tokenizer or "default")
    limits = plan.package.limits
    stops = decode.stop.tokens if decode.stop is not None else ()
    published = {f"{stage.id}.tokens", f"{stage.id}.text"}
    return LoopRules(
        context_length=context,
        max_new_tokens=_number(limits.max_new_tokens if limits else None),
        end_ids=(tokenizer.end_ids if tokenizer else frozenset()) | frozenset(_ids(stops, tokenizer)),
        suppressed=_ids(decode.suppress, tokenizer),
        streams=bool(published & set(plan.outputs.values())),
        decoder=None if tokenizer is None else lambda: make_detokenizer(tokenizer),
    )


def _ids(tokens: tuple[str | int, ...], tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """Ids of tokens given by text or id; texts were checked against the tokenizer at validation."""
    texts = [token for token in tokens if isinstance(token, str)]
    assert tokenizer is not None or not texts
    known = {text: tokenizer.token_id(text) for text in texts} if tokenizer is not None else {}
    return tuple(known[token] if isinstance(token, str) else token for token in tokens)

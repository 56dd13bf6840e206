"""Puts an engine together from a plan: loaded graphs, state pools, decode loops and a scheduler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from genai_pipeline.backends.protocol import Backend, LoadedGraph, LoadRequest
from genai_pipeline.config import DEFAULT_CONTEXT, LoadOptions
from genai_pipeline.engine.admission import Bounds
from genai_pipeline.engine.decode_loop import DecodeLoop, LoopRules
from genai_pipeline.engine.engine import Engine
from genai_pipeline.engine.gauges import engine_gauges
from genai_pipeline.engine.listeners import Listener, Listeners
from genai_pipeline.engine.memory import StateMemory, claim_memory
from genai_pipeline.engine.pace import Pace
from genai_pipeline.engine.state_keeper import StateKeeper
from genai_pipeline.engine.telemetry import Telemetry
from genai_pipeline.engine.trace import TraceFile, Tracer
from genai_pipeline.errors import OptionError, PackageError
from genai_pipeline.graph.plan import ComponentPlan, ExecutionPlan, ScopePlan, StagePlan, StatePlan
from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.page_store import PageStore
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.metadata.expressions import evaluate, names
from genai_pipeline.metadata.model import Binding, PackageSpec
from genai_pipeline.preprocess.detokenizer import make_detokenizer
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.scheduler.budget import Budget, Costs
from genai_pipeline.scheduler.policy import POLICIES
from genai_pipeline.scheduler.scheduler import Scheduler

ARENA_UPDATES = frozenset({"in_place", "scatter"})
SNAPSHOT_UPDATES = frozenset({"replace"})
COPIED_PER_NANOSECOND = 1.2  # bytes of state, to or from pages outside the rows; measured on two cores
PREFILL_BATCH = 64  # prompts of at most this many tokens start together: it pays for short ones only


@dataclass(frozen=True, slots=True)
class StatePart:
    """Where one loop keeps its state, and the rules that follow from it."""

    memory: StateMemory
    pool: KvPool
    store: PageStore
    keeper: StateKeeper
    rules: LoopRules

    def close(self) -> None:
        """Give the memory back."""
        self.pool.close()
        self.store.close()
        self.memory.release()


@dataclass(frozen=True, slots=True)
class Assembly:
    """An engine and what it stands on; ``close`` frees all of it."""

    engine: Engine
    graphs: Mapping[str, LoadedGraph]
    parts: Mapping[str, StatePart]  # by loop
    context_length: int
    telemetry: Telemetry
    listener: Listener

    @property
    def pools(self) -> dict[str, KvPool]:
        """The state pool of each loop."""
        return {id: part.pool for id, part in self.parts.items()}

    def close(self) -> None:
        """Stop the engine, then free states and graphs."""
        self.engine.close()
        self.listener.close()
        for part in self.parts.values():
            part.close()
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
    parts = [_state_part(plan, stage, tokenizers, options, context) for stage in plan.root.stages]
    loops = {
        stage.id: DecodeLoop(stage, graphs, part.pool, part.keeper, part.rules)
        for stage, part in zip(plan.root.stages, parts, strict=True)
    }
    pools = {stage.id: part.pool for stage, part in zip(plan.root.stages, parts, strict=True)}
    budgets = {
        id: Budget(
            max_rows=max(1, min(options.max_batch, pool.max_rows - loops[id].rules.batches_rows)),
            num_pages=pool.num_pages,
            prefill_tokens=options.prefill_chunk,
            prefill_batch=PREFILL_BATCH if loops[id].rules.batches_rows else 0,
        )
        for id, pool in pools.items()
    }
    token_bytes = max((component.bytes_per_token for component in plan.components.values()), default=0)
    scheduler = Scheduler(budgets, POLICIES[options.policy](), Costs(copy=int(token_bytes / COPIED_PER_NANOSECOND)))
    stores = [part.store for part in parts]
    gauges = engine_gauges(scheduler, pools, stores, graphs, prefix_cache=options.prefix_cache)
    telemetry = Telemetry(gauges, prefix_cache=options.prefix_cache)
    listener = telemetry if options.profile is None else Listeners(telemetry, Tracer(TraceFile(options.profile)))
    engine = Engine(plan, loops, scheduler, {id: Pace(options.prefill_chunk) for id in loops}, listener)
    return Assembly(
        engine,
        graphs,
        {stage.id: part for stage, part in zip(plan.root.stages, parts, strict=True)},
        context,
        telemetry,
        listener,
    )


def _state_part(
    plan: ExecutionPlan, stage: StagePlan, tokenizers: Mapping[str, Tokenizer], options: LoadOptions, context: int
) -> StatePart:
    states = _states(plan, stage)
    per_sequence = context * sum(plan.components[name].bytes_per_token for name in states)
    memory = claim_memory(options.memory, useful=2 * options.max_batch * max(per_sequence, 1 << 20))
    arenas = bool(_updates(plan, stage) & ARENA_UPDATES)
    # one row more than sequences, so that rows can change places
    pool = KvPool(states, max_rows=options.max_batch + arenas, capacity=context, budget_bytes=memory.live)
    store = PageStore(states, budget_bytes=memory.kept)
    keeper = StateKeeper(pool, store, states, reuse=options.prefix_cache)
    rules = _rules(plan, stage, tokenizers, _bounds(plan.package, pool, context))
    return StatePart(memory, pool, store, keeper, rules)


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


def _updates(plan: ExecutionPlan, stage: StagePlan) -> set[str]:
    """The update kinds of a loop's state."""
    return {state.update for states in _states(plan, stage).values() for state in states}


def _bounds(package: PackageSpec, pool: KvPool, context: int) -> Bounds:
    limits = package.limits
    return Bounds(context, pool.num_pages * PAGE_TOKENS, _number(limits.max_new_tokens if limits else None))


def _rules(plan: ExecutionPlan, stage: StagePlan, tokenizers: Mapping[str, Tokenizer], bounds: Bounds) -> LoopRules:
    decode = stage.spec.decode
    assert decode is not None
    tokenizer = tokenizers.get(decode.tokenizer or "default")
    stops = decode.stop.tokens if decode.stop is not None else ()
    published = {f"{stage.id}.tokens", f"{stage.id}.text"}
    return LoopRules(
        bounds=bounds,
        end_ids=(tokenizer.end_ids if tokenizer else frozenset()) | frozenset(_ids(stops, tokenizer)),
        suppressed=_ids(decode.suppress, tokenizer),
        streams=bool(published & set(plan.outputs.values())),
        decoder=None if tokenizer is None else lambda: make_detokenizer(tokenizer),
        batches_rows=bool(_updates(plan, stage) & ARENA_UPDATES),
        snapshots=bool(_updates(plan, stage) & SNAPSHOT_UPDATES),
    )


def _ids(tokens: tuple[str | int, ...], tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """Ids of tokens given by text or id; texts were checked against the tokenizer at validation."""
    texts = [token for token in tokens if isinstance(token, str)]
    assert tokenizer is not None or not texts
    known = {text: tokenizer.token_id(text) for text in texts} if tokenizer is not None else {}
    return tuple(known[token] if isinstance(token, str) else token for token in tokens)

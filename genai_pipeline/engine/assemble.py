"""Puts an engine together from a plan: loaded graphs, state pools, decode loops and a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from genai_pipeline.backends.placement import GraphPlacement
from genai_pipeline.backends.protocol import Backend, CompiledStore, LoadedGraph
from genai_pipeline.config import LoadOptions
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.draft_model import DraftPackage
from genai_pipeline.engine.drafters import add_draft_model, add_lookup
from genai_pipeline.engine.engine import Engine
from genai_pipeline.engine.gauges import engine_gauges
from genai_pipeline.engine.graphs import load_graphs, placements
from genai_pipeline.engine.job import JobStage
from genai_pipeline.engine.limits import context_length
from genai_pipeline.engine.listeners import Listeners
from genai_pipeline.engine.memory import StateMemory, claim_memory
from genai_pipeline.engine.node_times import NodeTimes
from genai_pipeline.engine.op_stage import OpStage
from genai_pipeline.engine.outputs import Outputs
from genai_pipeline.engine.pace import Pace
from genai_pipeline.engine.package_data import load_data
from genai_pipeline.engine.result_cache import ResultCache
from genai_pipeline.engine.state_part import StatePart, make_state_part, state_bytes
from genai_pipeline.engine.telemetry import Telemetry
from genai_pipeline.engine.trace import TraceFile, Tracer
from genai_pipeline.engine.walk import Runners, Walk, walked_stages
from genai_pipeline.engine.written_tokens import plan_with_token_ids
from genai_pipeline.graph.plan import ExecutionPlan, StagePlan
from genai_pipeline.kv.budget import parse_size
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.preprocess.prompts import PromptReader
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.scheduler.budget import Budget, Costs
from genai_pipeline.scheduler.policy import POLICIES
from genai_pipeline.scheduler.scheduler import Scheduler

COPIED_PER_NANOSECOND = 1.2  # bytes of state, to or from pages outside the rows; measured on two cores
PREFILL_BATCH = 64  # prompts of at most this many tokens start together: it pays for short ones only
SMALLEST_SEQUENCE = 1 << 20  # bytes that a loop counts for when memory is split, however little its state grows


@dataclass(frozen=True, slots=True)
class Assembly:
    """An engine and what it stands on; ``close`` frees all of it."""

    engine: Engine
    graphs: Mapping[str, LoadedGraph]
    placement: tuple[GraphPlacement, ...]  # of the draft package too
    parts: Mapping[str, StatePart]  # by loop
    context_length: int
    telemetry: Telemetry
    resources: ExitStack

    @property
    def pools(self) -> dict[str, KvPool]:
        """The state pool of each loop."""
        return {id: part.pool for id, part in self.parts.items()}

    def close(self) -> None:
        """Stop the engine, then free states, graphs and the claim on memory."""
        self.resources.close()


def assemble(
    plan: ExecutionPlan,
    backend: Backend,
    prompts: PromptReader,
    options: LoadOptions,
    draft: DraftPackage | None = None,
    compiled: CompiledStore | None = None,
) -> Assembly:
    """Load every component and start the engine; what fails half-way leaves nothing behind.

    ``draft``: the package that drafts for the one loop of ``plan``; ``compiled``: keeps what providers compile. Raises
    BackendError, CapacityError, OptionError or PackageError.
    """
    with ExitStack() as resources:
        context = context_length(plan.package, options)
        plan = plan_with_token_ids(plan, prompts.tokenizers)
        trace = None if options.profile is None else TraceFile(options.profile)
        times = None if trace is None else NodeTimes(trace, resources)
        graphs = load_graphs(plan, backend, options, resources, times, compiled)
        placement = placements(plan, graphs, backend.version())
        parts, spare = _parts(plan, graphs, prompts, options, context, draft, resources)
        stages = dict(walked_stages(plan.root))
        loops = {id: DecodeLoop(stages[id], graphs, part.pool, part.keeper, part.rules) for id, part in parts.items()}
        for loop in loops.values():
            resources.callback(loop.stop)
        add_lookup(loops, plan, options)
        if draft is not None and spare is not None:
            placement += add_draft_model(loops, plan, draft, backend, options, spare, context, resources)
        for one in placement:
            one.log()
        kept = options.encoder_cache
        cache = ResultCache(parse_size("encoder_cache", kept)) if kept != 0 else None
        runners = _runners(plan, loops, graphs, prompts.tokenizers, cache)
        scheduler = _scheduler(plan, parts, options)
        pools, stores = {id: part.pool for id, part in parts.items()}, [part.store for part in parts.values()]
        gauges = engine_gauges(scheduler, pools, stores, graphs, prefix_cache=options.prefix_cache)
        telemetry = Telemetry(gauges, prefix_cache=options.prefix_cache)
        listener = telemetry if trace is None else Listeners(telemetry, Tracer(trace))
        # last in, first out: the engine stops, then what its graphs noted is taken in, then the listener closes
        resources.callback(listener.close)
        if times is not None:
            resources.callback(times.take_in, graphs)
        paces = {id: Pace(options.prefill_chunk) for id in loops}
        most = None if options.max_queue is None else options.max_batch + options.max_queue
        walk = Walk(plan, runners, load_data(plan.package))
        engine = Engine(walk, runners, Outputs(plan), scheduler, paces, listener, most)
        resources.callback(engine.close)
        return Assembly(engine, graphs, placement, parts, context, telemetry, resources.pop_all())


def _parts(
    plan: ExecutionPlan,
    graphs: Mapping[str, LoadedGraph],
    prompts: PromptReader,
    options: LoadOptions,
    context: int,
    draft: DraftPackage | None,
    resources: ExitStack,
) -> tuple[dict[str, StatePart], StateMemory | None]:
    """The state of every loop, and memory for a draft package: one claim, split by what one sequence takes in each."""
    loops = {path: stage for path, stage in walked_stages(plan.root) if stage.spec.decode is not None}
    weights = [max(state_bytes(plan, stage, context), SMALLEST_SEQUENCE) for stage in loops.values()]
    if draft is not None:
        weights.append(max(state_bytes(draft.plan, draft.loop, context), SMALLEST_SEQUENCE))
    disk = 0 if options.cache_disk is None else parse_size("cache_disk", options.cache_disk)
    memory = claim_memory(options.memory, useful=2 * options.max_batch * sum(weights), disk=disk)
    resources.callback(memory.release)
    shares = memory.split(weights)
    parts: dict[str, StatePart] = {}
    for (path, stage), share in zip(loops.items(), shares, strict=False):
        parts[path] = make_state_part(
            plan, stage, graphs, prompts.tokenizers, options, context, share, templates=prompts.templates
        )
        resources.callback(parts[path].close)
    return parts, None if draft is None else shares[-1]


def _runners(
    plan: ExecutionPlan,
    loops: Mapping[str, DecodeLoop],
    graphs: Mapping[str, LoadedGraph],
    tokenizers: Mapping[str, Tokenizer],
    cache: ResultCache | None,
) -> Runners:
    """What runs each stage outside loops' bodies; results of components that read media are kept."""
    jobs: dict[str, JobStage] = {}
    ops: dict[str, OpStage] = {}
    for path, stage in walked_stages(plan.root):
        if stage.spec.run is not None:
            component = plan.components[stage.spec.run].spec
            kept = cache if _reads_media(stage, plan) else None
            jobs[path] = JobStage(path, stage, graphs[stage.spec.run], component, kept)
        elif stage.spec.op is not None:
            ops[path] = OpStage(path, stage, tokenizers)
    return Runners(loops, jobs, ops)


def _reads_media(stage: StagePlan, plan: ExecutionPlan) -> bool:
    """Whether a stage reads pictures or sounds of the request, as an encoder does."""
    media = [name for name, spec in plan.package.inputs.items() if spec.modality in ("image", "audio", "video")]
    read = [key.rpartition("/")[2].partition(".")[0] for key in stage.reads.values()]
    return any(name in media for name in read)


def _scheduler(plan: ExecutionPlan, parts: Mapping[str, StatePart], options: LoadOptions) -> Scheduler:
    budgets = {
        id: Budget(
            max_rows=part.rules.bounds.max_rows,
            num_pages=part.pool.num_pages,
            prefill_tokens=options.prefill_chunk,
            prefill_batch=PREFILL_BATCH if part.rules.batches_rows else 0,
        )
        for id, part in parts.items()
    }
    token_bytes = max((component.bytes_per_token for component in plan.components.values()), default=0)
    costs = Costs(copy=int(token_bytes / COPIED_PER_NANOSECOND))
    return Scheduler(budgets, POLICIES[options.policy](), costs, side_batch=options.max_batch)

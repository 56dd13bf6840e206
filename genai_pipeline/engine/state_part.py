"""Where one loop keeps its state: rows of running sequences, pages outside them, and the rules that follow."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Literal

from genai_pipeline.backends.protocol import LoadedGraph
from genai_pipeline.config import LoadOptions
from genai_pipeline.constraints.compiler import ConstraintCompiler
from genai_pipeline.engine.admission import Bounds
from genai_pipeline.engine.limits import limit
from genai_pipeline.engine.memory import StateMemory
from genai_pipeline.engine.rules import LoopRules
from genai_pipeline.engine.slot_values import identified_values
from genai_pipeline.engine.state_keeper import StateKeeper
from genai_pipeline.graph.plan import ExecutionPlan, StagePlan, StatePlan
from genai_pipeline.kv.geometry import PAGE_TOKENS, bytes_per_row
from genai_pipeline.kv.homes import StateHome, has_arenas
from genai_pipeline.kv.page_store import PageStore
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.kv.tiers import DiskTier
from genai_pipeline.metadata.build import DEFAULT_TOKENIZER
from genai_pipeline.metadata.model import DecodeSpec, PackageSpec
from genai_pipeline.parsing.reader import AnswerReader
from genai_pipeline.preprocess.chat import ChatTemplate
from genai_pipeline.preprocess.detokenizer import make_detokenizer
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.sampling.time_marks import TimeRule
from genai_pipeline.scheduler.ticket import WHOLE, Chunks
from genai_pipeline.speculative.loops import runs_alone

SNAPSHOT_UPDATES = frozenset({"replace"})


@dataclass(frozen=True, slots=True)
class StatePart:
    """The state of one loop; ``close`` frees it, not the claim on its memory."""

    pool: KvPool
    store: PageStore
    keeper: StateKeeper
    rules: LoopRules

    def close(self) -> None:
        """Give the memory back."""
        self.pool.close()
        self.store.close()


def state_bytes(plan: ExecutionPlan, stage: StagePlan, context: int) -> int:
    """Bytes that the state of one full sequence of a loop takes, as far as it is known before."""
    states = _states(plan, stage)
    fixed = bytes_per_row(state for entries in states.values() for state in entries)
    return fixed + context * sum(plan.components[name].bytes_per_token for name in states)


def make_state_part(
    plan: ExecutionPlan,
    stage: StagePlan,
    graphs: Mapping[str, LoadedGraph],
    tokenizers: Mapping[str, Tokenizer],
    options: LoadOptions,
    context: int,
    memory: StateMemory,
    templates: Mapping[str, ChatTemplate | None] | None = None,
) -> StatePart:
    """The state of a loop within its memory. Raises CapacityError when not even two pages fit, OptionError.

    Answers of a loop without ``templates`` are not taken apart and not bound.
    """
    states = _states(plan, stage)
    homes = {name: StateHome.of(graphs[name]) for name in states}
    arenas = has_arenas(states, homes)
    with ExitStack() as undo:
        # one row more than sequences, so that rows can change places
        rows = options.max_batch + arenas
        pool = KvPool(states, max_rows=rows, capacity=context, budget_bytes=memory.live, homes=homes)
        undo.callback(pool.close)
        disk = DiskTier(Path(options.cache_folder or gettempdir()), memory.disk) if memory.disk else None
        store = PageStore(states, budget_bytes=memory.kept, int8=options.cache_int8, disk=disk)
        undo.callback(store.close)
        max_rows = max(1, min(options.max_batch, pool.max_rows - arenas))
        bounds = _bounds(plan.package, pool, context, max_rows)
        rules = replace(
            _rules(plan, stage, tokenizers, templates, bounds),
            batches_rows=arenas,
            drafts_alone=runs_alone(plan, stage, {name: graphs[name].abilities.alone_on_past for name in states}),
        )
        keeper = StateKeeper(pool, store, states, reuse=options.prefix_cache, keeps=rules.keeps, resumes=rules.resumes)
        undo.pop_all()
    return StatePart(pool, store, keeper, rules)


def _states(plan: ExecutionPlan, stage: StagePlan) -> dict[str, tuple[StatePlan, ...]]:
    assert stage.body is not None
    names = {inner.spec.run for inner in stage.body.stages if inner.spec.run is not None}
    return {name: plan.components[name].states for name in sorted(names)}


def _chunks(plan: ExecutionPlan, stage: StagePlan) -> Chunks:
    """How many tokens runs of a row may take, where components say so (``span``); the checks see that they agree."""
    spans = [span for name in _states(plan, stage) if (span := plan.components[name].spec.span) is not None]
    return Chunks(_limit({span.first for span in spans}), _limit({span.later for span in spans}))


def _limit(said: set[int | Literal["whole"]]) -> int | None:
    """Most tokens of a run of which components say this."""
    return min((WHOLE if one == "whole" else one for one in said), default=None)


def _updates(plan: ExecutionPlan, stage: StagePlan) -> set[str]:
    """The update kinds of a loop's state."""
    return {state.update for states in _states(plan, stage).values() for state in states}


def _bounds(package: PackageSpec, pool: KvPool, context: int, max_rows: int) -> Bounds:
    most = limit(package.limits.max_new_tokens if package.limits else None)
    return Bounds(context, pool.num_pages * PAGE_TOKENS, most, max_rows, pool.num_pages)


def _rules(
    plan: ExecutionPlan,
    stage: StagePlan,
    tokenizers: Mapping[str, Tokenizer],
    templates: Mapping[str, ChatTemplate | None] | None,
    bounds: Bounds,
) -> LoopRules:
    decode = stage.spec.decode
    assert decode is not None
    name = decode.tokenizer or DEFAULT_TOKENIZER
    tokenizer = tokenizers.get(name)
    stops = decode.stop.tokens if decode.stop is not None else ()
    end_ids = (tokenizer.end_ids if tokenizer else frozenset()) | frozenset(_ids(stops, tokenizer))
    known = 0 if tokenizer is None else tokenizer.highest_id + 1
    vocabulary = plan.facts["vocab_sizes"].get(stage.body.id if stage.body else stage.id, known)
    updates = _updates(plan, stage)
    chunks = _chunks(plan, stage)
    rules = LoopRules(
        bounds=bounds,
        end_ids=end_ids,
        suppressed=_ids(decode.suppress, tokenizer),
        not_first=_ids(decode.begin_suppress, tokenizer),
        streams=bool({f"{stage.id}.tokens", f"{stage.id}.text"} & set(plan.outputs.values())),
        snapshots=bool(updates & SNAPSHOT_UPDATES),
        vocabulary=vocabulary,
        keeps=not decode.carry
        and not any(state.source for states in _states(plan, stage).values() for state in states),
        chunks=chunks,
        resumes=chunks.first != WHOLE,
        identified=identified_values(plan, stage),
        times=_times(decode, tokenizer, end_ids),
        tokenizers=tokenizers,
    )
    if tokenizer is None:
        return rules
    rules = replace(rules, decoder=lambda visible: make_detokenizer(tokenizer, visible))
    if templates is None:
        return rules
    reader = AnswerReader.of(plan.package, tokenizer, templates.get(name))
    declared = plan.package.structured_output
    modes = None if declared is None else frozenset(declared["modes"])
    return replace(rules, reader=reader, modes=modes, compiler=ConstraintCompiler(tokenizer, vocabulary, end_ids))


def _times(decode: DecodeSpec, tokenizer: Tokenizer | None, end_ids: frozenset[int]) -> TimeRule | None:
    """How tokens mark times in a loop, if they do."""
    times = decode.times
    if times is None:
        return None
    latest = times.last if times.latest_start is None else times.latest_start
    first, last, latest_start = _ids((times.first, times.last, latest), tokenizer)
    return TimeRule(first, last, latest_start, tuple(sorted(end_ids)), _ids(decode.suppress, tokenizer))


def _ids(tokens: tuple[str | int, ...], tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """Ids of tokens given by text or id; texts were checked against the tokenizer at validation."""
    texts = [token for token in tokens if isinstance(token, str)]
    assert tokenizer is not None or not texts
    known = {text: tokenizer.token_id(text) for text in texts} if tokenizer is not None else {}
    return tuple(known[token] if isinstance(token, str) else token for token in tokens)

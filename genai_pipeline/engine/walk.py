"""The walk of one request along the stages of its plan: a stage starts as soon as all it reads is there.

Scopes nest: a group enters its body once per item, an iterate loop once per step. A stage whose condition is false, or
which misses a value that it needs, is skipped: what it would give is None, and so it goes for those that need that.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from genai_pipeline.engine.beams import Search
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.iteration import Iteration, Piece
from genai_pipeline.engine.job import Job, JobStage
from genai_pipeline.engine.needs import ScopeNeeds, misses
from genai_pipeline.engine.op_stage import OpCall, OpStage
from genai_pipeline.engine.request import RequestState
from genai_pipeline.engine.scope_run import Call, ScopeRun, StageRun, Values, item_values, stage_path
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.errors import RequestError
from genai_pipeline.graph.plan import ExecutionPlan, ScopePlan, StagePlan
from genai_pipeline.metadata.expression_values import truth
from genai_pipeline.metadata.expressions import evaluate

STEPS_AT_ONCE = 64  # of loops that need no graph: then decode rows and others have their turn
_job_ids = itertools.count()


@dataclass(slots=True)
class Work:
    """What a request starts at one time; ``over``: it has walked all stages."""

    sequences: list[Sequence] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    ops: list[OpCall] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    postponed: list[ScopeRun] = field(default_factory=list)  # steps of loops that let others go first
    over: bool = False


@dataclass(frozen=True, slots=True)
class Runners:
    """What runs the stages of a plan, by path."""

    loops: Mapping[str, DecodeLoop]
    jobs: Mapping[str, JobStage]
    ops: Mapping[str, OpStage]


class Walk:
    """Starts the stages of requests, publishes what they give, and frees what nobody reads any more.

    ``constants`` are values that every request has: the tensors of the package.
    """

    def __init__(self, plan: ExecutionPlan, runners: Runners, constants: Values) -> None:
        self._plan = plan
        self._runners = runners
        self._constants = constants
        self._needs: dict[str, ScopeNeeds] = {scope.id: ScopeNeeds(scope) for scope in _scopes(plan.root)}
        self._starters: Mapping[str, Callable[[Call, _Pass], None]] = {
            "run": self._start_job,
            "op": self._start_op,
            "decode": self._start_loop,
            "group": self._enter_group,
            "iterate": self._start_iteration,
        }
        self.last_loop = next((s.id for s in reversed(plan.root.stages) if s.spec.kind == "decode"), None)

    def begin(self, state: RequestState) -> Work:
        """Refuse what no loop could take, before anything runs; then start what can. Raises RequestError."""
        state.values.update(self._constants)
        self._check_choices(state)
        for loop in self._runners.loops.values():
            loop.intake.check(state)
        for stage in self._plan.root.stages:
            if stage.spec.kind == "decode":
                admitted = self._runners.loops[stage.id].intake.admit(state, state.values)
                if admitted is not None:
                    state.taken[stage.id] = admitted
        state.root = ScopeRun(self._plan.root, state, state.values)
        return self._settle(_Pass(deque([state.root])))

    def finish_loop(self, call: Call) -> Work:
        """Publish the values of a loop whose sequences have all ended, those of its first choice, and go on."""
        first, prefix = call.sequences[0], call.path
        loop = self._runners.loops[prefix]
        values = {
            "tokens": generated_tokens(loop, first),
            "text": first.text.text,
            "finish_reason": first.finish_reason,
        }
        return self.finish(call, {f"{prefix}.{name}": value for name, value in values.items()})

    def finish(self, call: Call, outputs: Values) -> Work:
        """A call has given its outputs: go on with what can start now. Raises RequestError."""
        start = _Pass(deque())
        start.ended.append((call, outputs))
        return self._settle(start)

    def resume(self, scope: ScopeRun) -> Work:
        """Go on with a step that was postponed. Raises RequestError."""
        return self._settle(_Pass(deque([scope])))

    def _check_choices(self, state: RequestState) -> None:
        if self.last_loop is not None:
            return
        if state.request.options.n > 1:
            raise RequestError("n asks for several choices, and this package has no loop that chooses", param="n")
        if state.request.options.prompt_logprobs is not None:
            message = "prompt_logprobs scores a prompt, and the loops of this package stand in groups"
            raise RequestError(message, param="prompt_logprobs")

    def _settle(self, now: _Pass) -> Work:
        """Start stages and take in what has ended until nothing more follows at once."""
        while now.touched or now.ended:
            if now.ended:
                self._take_in(*now.ended.popleft(), now)
            else:
                self._go_on(now.touched.popleft(), now)
        return now.work

    def _take_in(self, call: Call, outputs: Values, now: _Pass) -> None:
        call.outputs = outputs
        run = call.run
        run.num_open -= 1
        if not run.num_open:
            self._publish(run.stage, run.scope, run.published())
            now.touched.append(run.scope)

    def _publish(self, stage: StagePlan, scope: ScopeRun, values: Values) -> None:
        """A stage is over: its values join its scope, and those that nobody reads any more leave it."""
        scope.active.pop(stage.id, None)
        scope.own.update(values)
        needs = self._needs[scope.plan.id]
        for key in needs.freed_by(stage.id, scope.waiting.keys() | scope.active.keys()):
            scope.own.pop(key, None)

    def _go_on(self, scope: ScopeRun, now: _Pass) -> None:
        """Start the stages of a scope whose values have all come; leave the scope when it is over."""
        needs = self._needs[scope.plan.id]
        while ready := [stage for stage in scope.waiting.values() if needs.of(stage.id) <= scope.own.keys()]:
            for stage in ready:
                del scope.waiting[stage.id]
                self._start(stage, scope, now)
        assert scope.active or not scope.waiting, "checked plans have no stage that never starts"
        if scope.over and not scope.left:  # several of its stages may have ended at the same time
            scope.left = True
            self._leave(scope, now)

    def _start(self, stage: StagePlan, scope: ScopeRun, now: _Pass) -> None:
        if stage.each is None and self._skipped(stage, scope.values):
            self._publish(stage, scope, dict.fromkeys(stage.outputs.values()))
            return
        items = None
        if stage.each is not None:
            given = scope.values[stage.each]
            items = [item_values(stage, scope.plan, item) for item in (() if given is None else given)]
        run = scope.active[stage.id] = StageRun(stage, scope, items)
        if not run.calls:
            self._publish(stage, scope, run.published())
        for call in run.calls:
            if stage.each is not None and self._skipped(stage, call.values):
                now.ended.append((call, {}))
            else:
                self._starters[stage.spec.kind](call, now)

    def _skipped(self, stage: StagePlan, values: Values) -> bool:
        """Whether a stage does not run: its condition says so, or something that it needs is not there."""
        when = stage.spec.when
        if when is not None and not truth(evaluate(when.expr, lambda name: values[stage.reads[name]]), "when"):
            return True
        return misses(stage, values)

    def _start_job(self, call: Call, now: _Pass) -> None:
        stage = self._runners.jobs[call.path]
        job = stage.job(next(_job_ids), call)
        known = stage.known(job)
        if known is not None:
            now.ended.append((call, known))
        else:
            now.work.jobs.append(job)

    def finish_job(self, job: Job, outputs: Values) -> Work:
        """A component has run for a job: see ``finish``."""
        self._runners.jobs[job.stage].keep(job, outputs)
        return self.finish(job.call, outputs)

    def _start_op(self, call: Call, now: _Pass) -> None:
        stage = self._runners.ops[call.path]
        prepared = stage.prepare(call)
        if stage.offload:
            now.work.ops.append(prepared)
        else:
            now.ended.append((call, stage.run(prepared)))

    def _start_loop(self, call: Call, now: _Pass) -> None:
        loop, state = self._runners.loops[call.path], call.request
        call.sequences = loop.intake.new_sequences(state, call.values, state.taken.get(call.path))
        state.loop_calls.append(call)
        state.num_prompt += call.sequences[0].num_prompt
        call.search = loop.intake.search(call.sequences)
        for sequence in [*call.sequences, *(call.search.beams if call.search is not None else ())]:
            sequence.call = call
        if call.search is None:
            now.work.sequences.extend(call.sequences)
        else:
            now.work.searches.append(call.search)

    def _enter_group(self, call: Call, now: _Pass) -> None:
        assert call.stage.body is not None
        now.touched.append(ScopeRun(call.stage.body, call.request, {}, call, call.item))

    def _start_iteration(self, call: Call, now: _Pass) -> None:
        call.iteration = Iteration(call)
        self._next_step(call, call.iteration, now)

    def _next_step(self, call: Call, iteration: Iteration, now: _Pass) -> None:
        if iteration.over:
            now.ended.append((call, iteration.outputs()))
            return
        assert call.stage.body is not None
        item = (*call.item, iteration.index)
        entered = ScopeRun(call.stage.body, call.request, iteration.step(), call, item)
        now.num_steps += 1
        (now.touched if now.num_steps <= STEPS_AT_ONCE else now.work.postponed).append(entered)

    def _leave(self, scope: ScopeRun, now: _Pass) -> None:
        """A scope is over: an item has its values, a step is done, or the request is."""
        call = scope.owner
        if call is None:
            now.work.over = True
        elif call.iteration is not None:
            pieces = call.iteration.end_step(scope)
            if not call.run.listed:  # several sounds at once are no stream
                now.work.pieces.extend(pieces)
            self._next_step(call, call.iteration, now)
        else:
            prefix = f"{call.run.scope.plan.id}/" if call.run.scope.plan.id else ""
            now.ended.append((call, {f"{prefix}{name}": scope.own[key] for name, key in scope.plan.publishes.items()}))


@dataclass(slots=True)
class _Pass:
    """What is to be looked at before the engine goes on: scopes that have changed, and calls that have ended."""

    touched: deque[ScopeRun]
    ended: deque[tuple[Call, Values]] = field(default_factory=deque)
    work: Work = field(default_factory=Work)
    num_steps: int = 0  # of iterate loops


def generated_tokens(loop: DecodeLoop, sequence: Sequence) -> tuple[int, ...]:
    """What the sequence chose, without the end token."""
    tokens = sequence.tokens[sequence.num_prompt :]
    return tuple(tokens[:-1] if tokens and loop.rules.ends(sequence, tokens[-1]) else tokens)


def _scopes(root: ScopePlan) -> Iterator[ScopePlan]:
    """The scopes that the walk enters: all but the bodies of decode loops."""
    yield root
    for stage in root.stages:
        if stage.body is not None and stage.spec.kind != "decode":
            yield from _scopes(stage.body)


def walked_stages(root: ScopePlan) -> Iterator[tuple[str, StagePlan]]:
    """(path, stage) of every stage that the walk starts."""
    for scope in _scopes(root):
        for stage in scope.stages:
            yield stage_path(scope, stage), stage

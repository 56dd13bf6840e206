"""The walk of one request along the stages of its plan: a stage starts as soon as all it reads is there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from genai_pipeline.engine.beams import Search
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.job import Arrays, Job, JobStage
from genai_pipeline.engine.request import RequestState
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.graph.plan import ExecutionPlan, StagePlan

_job_ids = itertools.count()


class Work(NamedTuple):
    """What a request starts at one time."""

    sequences: list[Sequence]
    jobs: list[Job]
    searches: list[Search]


class Walk:
    """Starts the stages of requests, publishes what they give, and frees what nobody reads any more."""

    def __init__(
        self, plan: ExecutionPlan, loops: Mapping[str, DecodeLoop], job_stages: Mapping[str, JobStage]
    ) -> None:
        self._plan = plan
        self._loops = loops
        self._job_stages = job_stages
        self._reads = {stage.id: frozenset(_outer_reads(stage)) for stage in plan.root.stages}
        self._freed = {key for stage in plan.root.stages for key in stage.drop_after}
        self.last_loop = next((stage.id for stage in reversed(plan.root.stages) if stage.id in loops), None)

    def begin(self, state: RequestState) -> Work:
        """Refuse what no loop could take, before anything runs; then start what can. Raises RequestError."""
        state.waiting = {stage.id: stage for stage in self._plan.root.stages}
        for stage in self._plan.root.stages:
            if stage.id in self._loops:
                self._loops[stage.id].intake.admit(state)
        return self.start_ready(state)

    def start_ready(self, state: RequestState) -> Work:
        """Sequences and jobs of the stages whose values have all come. Raises RequestError."""
        work = Work([], [], [])
        for stage in [s for s in state.waiting.values() if self._reads[s.id] <= state.values.keys()]:
            del state.waiting[stage.id]
            state.active.add(stage.id)
            if stage.id in self._loops:
                sequences = state.sequences[stage.id] = self._loops[stage.id].intake.new_sequences(state)
                state.num_prompt += sequences[0].num_prompt
                search = self._loops[stage.id].intake.search(sequences)
                if search is None:
                    work.sequences.extend(sequences)
                else:
                    state.searches[stage.id] = search
                    work.searches.append(search)
            else:
                work.jobs.append(self._job_stages[stage.id].job(next(_job_ids), state))
        assert state.active or not state.waiting, "checked plans have no stage that never starts"
        return work

    def finish_loop(self, state: RequestState, id: str) -> None:
        """Publish the values of a loop whose sequences have all ended: those of its first choice."""
        first = state.sequences[id][0]
        values = {
            "tokens": generated_tokens(self._loops[id], first),
            "text": first.text.text,
            "finish_reason": first.finish_reason,
        }
        self._finish(state, id, {f"{id}.{name}": value for name, value in values.items()})

    def finish_job(self, job: Job, outputs: Arrays) -> None:
        """Publish what a component gave."""
        self._finish(job.request, job.stage, outputs)

    def outputs(self, state: RequestState) -> dict[str, object]:
        """The declared outputs of a request that has walked all stages."""
        return {name: state.values[key] for name, key in self._plan.outputs.items()}

    def _finish(self, state: RequestState, id: str, values: Mapping[str, object]) -> None:
        state.active.remove(id)
        state.values.update(values)
        pending = state.waiting.keys() | state.active
        for key in self._reads[id] & self._freed:
            if not any(key in self._reads[other] for other in pending):
                state.values.pop(key, None)


def generated_tokens(loop: DecodeLoop, sequence: Sequence) -> tuple[int, ...]:
    """What the sequence chose, without the end token."""
    tokens = sequence.tokens[sequence.num_prompt :]
    return tuple(tokens[:-1] if tokens and loop.rules.ends(sequence, tokens[-1]) else tokens)


def _outer_reads(stage: StagePlan) -> Iterator[str]:
    """Keys of the root scope that a stage reads, in its body too."""
    inner = stage.body.stages if stage.body is not None else ()
    for reads in (stage.reads, *(one.reads for one in inner)):
        yield from (key for key in reads.values() if "/" not in key and not key.startswith("loop."))

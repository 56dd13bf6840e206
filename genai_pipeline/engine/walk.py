"""The walk of one request along the stages of its plan, from the first loop to the declared outputs."""

from __future__ import annotations

from collections.abc import Mapping

from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.request import RequestState
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.graph.plan import ExecutionPlan
from genai_pipeline.types import Event


class Walk:
    """Starts the stages of requests in order and publishes what they give."""

    def __init__(self, plan: ExecutionPlan, loops: Mapping[str, DecodeLoop]) -> None:
        self._plan = plan
        self._loops = loops

    def start_next(self, state: RequestState) -> list[Sequence]:
        """Sequences of the request's next loop; none when the walk is over. Raises RequestError."""
        if state.next_stage == len(self._plan.root.stages):
            return []
        stage = self._plan.root.stages[state.next_stage]
        state.next_stage += 1
        state.sequences = self._loops[stage.id].new_sequences(state)
        state.num_prompt += state.sequences[0].num_prompt
        return state.sequences

    def in_last_loop(self, state: RequestState) -> bool:
        """Whether the loop that runs now is the request's last."""
        return state.next_stage == len(self._plan.root.stages)

    def publish(self, state: RequestState) -> None:
        """Publish the values of the loop whose sequences have all ended."""
        first = state.sequences[0]
        loop = self._loops[first.loop]
        values = {
            "tokens": generated_tokens(loop, first),
            "text": first.text.text,
            "finish_reason": first.finish_reason,
        }
        state.values.update({f"{first.loop}.{name}": value for name, value in values.items()})

    def outputs(self, state: RequestState) -> dict[str, object]:
        """The declared outputs of a request that has walked all stages."""
        return {name: state.values[key] for name, key in self._plan.outputs.items()}


def generated_tokens(loop: DecodeLoop, sequence: Sequence) -> tuple[int, ...]:
    """What the sequence chose, without the end token."""
    tokens = sequence.tokens[sequence.num_prompt :]
    return tuple(tokens[:-1] if tokens and loop.is_end(sequence, tokens[-1]) else tokens)


def last_event(sequence: Sequence, text: str, outputs: Mapping[str, object] | None) -> Event:
    """The event that ends a choice, with text that was held back; with ``outputs`` it ends the request too."""
    assert sequence.finish_reason is not None
    state, ended = sequence.request, outputs is not None
    return Event(
        index=sequence.choice,
        text=text,
        finish_reason=sequence.finish_reason,
        error=sequence.error,
        usage=state.usage() if ended else None,
        timings=state.timings() if ended else None,
        outputs=outputs,
        notes=tuple(state.notes) if ended else (),
    )

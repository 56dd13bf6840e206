"""A peer under the same load on the same ONNX file: the continuous-batching ``Engine`` of onnxruntime-genai.

The one module that imports onnxruntime_genai.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_pipeline.cli.benching.load import Job, Schedule
from genai_pipeline.cli.benching.measure import Record
from genai_pipeline.errors import OptionError, RuntimeMissingError
from genai_pipeline.graph.plan import ComponentPlan, ExecutionPlan, StagePlan
from genai_pipeline.metadata.expressions import Name

if TYPE_CHECKING:
    from numpy.typing import NDArray

PEER = "onnxruntime-genai"
_INPUTS = {"loop.tokens": "input_ids", "loop.attention_mask": "attention_mask", "loop.position_ids": "position_ids"}


def require_peer() -> None:
    """Raise RuntimeMissingError unless the peer is installed."""
    if importlib.util.find_spec("onnxruntime_genai") is None:
        raise RuntimeMissingError(f"{PEER} is not installed", hint="install 'genai-pipeline[bench]'")


def peer_config(plan: ExecutionPlan, max_length: int) -> dict[str, Any]:
    """The peer's description of the package. Raises OptionError for a package that it has no form for.

    Of the geometry only that of keys and values matters; what the graph does not tell (attention heads, hidden size) is
    given as if there were as many queries as keys.
    """
    loop, stage, component = _decoder(plan)
    past, present = _state_names(component)
    _, heads, _, dim = component.states[0].tensors[0].shape
    assert isinstance(heads, int)
    assert isinstance(dim, int)
    (logits,) = stage.outputs
    return {
        "model": {
            "type": "llama",
            "eos_token_id": [],
            "pad_token_id": 0,
            "context_length": max_length,
            "vocab_size": plan.facts["vocab_sizes"][loop.id],
            "decoder": {
                "session_options": {"provider_options": []},
                "filename": Path(component.model).name,
                "head_size": dim,
                "hidden_size": heads * dim,
                "num_attention_heads": heads,
                "num_hidden_layers": len({tensor.layer for tensor in component.states[0].tensors}),
                "num_key_value_heads": heads,
                "inputs": {**_inputs(stage), "past_key_names": past[0], "past_value_names": past[1]},
                "outputs": {"logits": logits, "present_key_names": present[0], "present_value_names": present[1]},
            },
        },
        "search": {"max_length": max_length, "do_sample": False, "past_present_share_buffer": True},
    }


def _decoder(plan: ExecutionPlan) -> tuple[StagePlan, StagePlan, ComponentPlan]:
    """The loop, its one stage and that stage's component."""
    loops = [stage for stage in plan.root.stages if stage.body is not None]
    if len(loops) == len(plan.root.stages) == 1 and loops[0].body is not None and len(loops[0].body.stages) == 1:
        (stage,) = loops[0].body.stages
        component = plan.components.get(stage.spec.run or "")
        if component is not None and [state.update for state in component.states] == ["in_place"]:
            return loops[0], stage, component
    raise _no_form("it runs one decoder graph whose cache is updated in place, in one decode loop")


def _inputs(stage: StagePlan) -> dict[str, str]:
    """The peer's names of what feeds the graph -> its ports."""
    found = {}
    for port, bound in stage.spec.inputs.items():
        name = bound.expr.text if not isinstance(bound, tuple) and isinstance(bound.expr, Name) else ""
        if name not in _INPUTS:
            raise _no_form(f"port '{port}' takes something else than tokens, mask and positions")
        found[_INPUTS[name]] = port
    return found


def _state_names(component: ComponentPlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of past and present ports, for key and value, with ``%d`` for the layer."""
    (kv,) = component.spec.kv
    tensors = component.states[0].tensors
    parts = tuple(dict.fromkeys(tensor.part for tensor in tensors))
    past, present = (
        tuple((pattern or "").replace("{layer}", "%d").replace("{part}", part) for part in parts)
        for pattern in (kv.past, kv.present)
    )
    numbers = [tensor.layer for tensor in tensors if tensor.part == parts[0]]
    if len(parts) != 2 or "%d" not in past[0] or numbers != list(range(len(numbers))):
        raise _no_form("its cache has one key and one value port per layer, numbered from 0")
    return past, present


def _no_form(why: str) -> OptionError:
    return OptionError(f"{PEER} cannot run this package as it is: {why}", param="peer", hint="leave --peer out")


@dataclass(slots=True)
class _Turn:
    """A request that runs."""

    index: int
    due: float
    tokens: list[float] = field(default_factory=list)
    error: str | None = None


def _linked(plan: ExecutionPlan, max_length: int) -> tempfile.TemporaryDirectory[str]:
    """A folder as the peer takes it: the files of the package, linked beside a configuration."""
    config = peer_config(plan, max_length)
    component = _decoder(plan)[2]
    held = tempfile.TemporaryDirectory(prefix="peer-")
    folder = Path(held.name)
    model = ((component.spec.root or plan.package.root) / component.model).resolve()
    for file in model.parent.iterdir():
        if file.is_file():
            (folder / file.name).symlink_to(file)
    (folder / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    return held


class PeerModel:
    """The peer's generator, for its logits; sequences of up to ``max_length`` tokens, one at a time."""

    def __init__(self, plan: ExecutionPlan, max_length: int) -> None:
        import onnxruntime_genai

        self._api: Any = onnxruntime_genai
        self._folder = _linked(plan, max_length)
        self._model = self._api.Model(self._folder.name)
        self._length = max_length
        self._generator: Any = None

    @staticmethod
    def check(plan: ExecutionPlan) -> None:
        """Raise OptionError for a package that the peer has no form for."""
        peer_config(plan, 1)

    def start(self, tokens: Sequence[int]) -> NDArray[Any]:
        """Begin a sequence; the logits [vocabulary] after its last token."""
        options = self._api.GeneratorParams(self._model)
        options.set_search_options(max_length=self._length, do_sample=False)
        self._generator = self._api.Generator(self._model, options)
        return self._logits_after(tokens)

    def step(self, token: int) -> NDArray[Any]:
        """Add a token; the logits [vocabulary] after it."""
        return self._logits_after([token])

    def close(self) -> None:
        """Free the model, then its folder."""
        del self._generator, self._model
        self._folder.cleanup()

    def _logits_after(self, tokens: Sequence[int]) -> NDArray[Any]:
        import numpy as np

        self._generator.append_tokens(np.array(tokens, np.int32))
        logits: NDArray[Any] = self._generator.get_logits()
        last: NDArray[Any] = logits.reshape(-1, logits.shape[-1])[-1]
        return last


class PeerContestant:
    """Runs loads on the peer's engine."""

    def __init__(self, plan: ExecutionPlan, max_length: int) -> None:
        import onnxruntime_genai

        self._api: Any = onnxruntime_genai
        self._folder = _linked(plan, max_length)
        self._engine = self._api.Engine(self._api.Model(self._folder.name))
        self._events = self._engine.create_event_buffer(256)

    def run(self, schedule: Schedule) -> list[Record]:
        """Run every request to its end, in the order of the schedule."""
        waiting = deque(enumerate(schedule.jobs))
        limit = schedule.concurrency or len(schedule.jobs)
        live: dict[Any, _Turn] = {}
        done: dict[int, _Turn] = {}
        start = time.perf_counter()
        while waiting or live:
            now = time.perf_counter() - start
            while waiting and len(live) < limit and waiting[0][1].arrival <= now:
                index, job = waiting.popleft()
                due = now if schedule.concurrency else job.arrival
                live[self._submit(job)] = _Turn(index, due)
            if not live:
                time.sleep(max(0.0, waiting[0][1].arrival - now))
                continue
            self._step(live, done, start)
        return [
            Record(done[index].due, tuple(done[index].tokens), len(job.tokens), error=done[index].error)
            for index, job in enumerate(schedule.jobs)
        ]

    def close(self) -> None:
        """Free the engine, then its folder."""
        del self._events, self._engine
        self._folder.cleanup()

    def _submit(self, job: Job) -> Any:
        import numpy as np

        options = self._api.RequestOptions()
        options.set_max_session_tokens(len(job.tokens) + job.output_tokens)
        request = self._engine.create_request(options=options)
        turn = self._api.TurnOptions(request)
        turn.set_do_sample(False)
        turn.set_max_generated_tokens(job.output_tokens)
        turn.set_min_generated_tokens(job.output_tokens)
        request.begin_turn(np.array(job.tokens, np.int32), turn)
        return request

    def _step(self, live: dict[Any, _Turn], done: dict[int, _Turn], start: float) -> None:
        flags = self._api.EngineEventFlags
        for event in self._engine.run(self._events):
            turn, now = live[event.request], time.perf_counter() - start
            if event.flags & flags.TOKEN:
                turn.tokens.append(now)
            if event.flags & flags.FAILED:
                turn.error = str(event.error_code)
            if event.flags & (flags.TURN_FINISHED | flags.FAILED):
                done[turn.index] = live.pop(event.request)
                event.request.close()

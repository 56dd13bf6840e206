"""A request as the engine sees it: what was asked (frozen), and how far it has come (mutable)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from genai_pipeline.engine.answer_form import AnswerForm
from genai_pipeline.errors import OptionError
from genai_pipeline.option_values import number, text
from genai_pipeline.problems import nearest, one_of, shown
from genai_pipeline.sampling.params import GenerationOptions
from genai_pipeline.scheduler.ticket import Priority
from genai_pipeline.speculative.stats import SpeculationStats
from genai_pipeline.types import Event, Timings, TokenLogprobs, Usage

if TYPE_CHECKING:
    from genai_pipeline.backends.placement import GraphPlacement
    from genai_pipeline.engine.intake import Admitted
    from genai_pipeline.engine.scope_run import Call, ScopeRun
    from genai_pipeline.engine.sequence import Sequence

Emit = Callable[[Event | None], None]  # called from the engine thread; None: no event follows


@dataclass(frozen=True, slots=True)
class Queueing:
    """How a request waits: ``deadline`` is on the clock of time.perf_counter, ``key`` says whose share it uses."""

    deadline: float | None = None
    priority: Priority = Priority.NORMAL
    key: str = ""

    @staticmethod
    def of(*, timeout: float | None = None, priority: str = "normal", key: str = "") -> Queueing:
        """Checked settings; ``timeout`` in seconds from now. Raises OptionError."""
        seconds = None if timeout is None else number("timeout", timeout, 0, above=True)
        names = {level.name.lower(): level for level in Priority}
        if not isinstance(priority, str) or priority not in names:
            hint = (nearest(priority, names) if isinstance(priority, str) else "") or f"priorities are: {one_of(names)}"
            raise OptionError(f"unknown priority {shown(priority)}", param="priority", hint=hint)
        deadline = None if seconds is None else time.perf_counter() + seconds
        return Queueing(deadline, names[priority], text("key", key))


@dataclass(frozen=True, slots=True)
class Request:
    """Normalised input values by name, effective options, and where events go: ``emit`` is set when it is submitted."""

    values: Mapping[str, Any]  # "prompt.tokens", "prompt.text", "parameters.x", ...
    options: GenerationOptions
    seed: int
    emit: Emit = lambda event: None
    queueing: Queueing = Queueing()
    form: AnswerForm = field(default_factory=AnswerForm)
    salt: bytes = b""  # requests with different salts share no state
    graphs: tuple[GraphPlacement, ...] = ()  # what runs the package, told in its usage
    submitted: float = field(default_factory=time.perf_counter)


class RequestState:
    """Progress of one request along the stages of its plan."""

    __slots__ = (
        "admitted",
        "done",
        "first_token",
        "given_up",
        "graph_seconds",
        "held",
        "last_token",
        "loop_calls",
        "notes",
        "num_cached",
        "num_completion",
        "num_prompt",
        "request",
        "root",
        "taken",
        "values",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.values: dict[str, Any] = dict(request.values)
        self.root: ScopeRun | None = None  # where it is on its way
        self.taken: dict[str, Admitted] = {}  # by loop, what was granted before anything ran
        self.loop_calls: list[Call] = []  # of decode loops, in the order they started
        self.held: Event | None = None  # the end of the last choice, while other stages still run
        self.num_prompt = 0
        self.num_completion = 0
        self.num_cached = 0
        self.notes: list[str] = []
        self.done = False
        self.given_up = False  # by its consumer; set on any thread, and the engine ends it when it comes to that
        self.admitted: float | None = None
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.graph_seconds = 0.0

    def usage(self) -> Usage:
        """Token counts so far, over all loops of the request."""
        drafts = [sequence.speculation for sequence in self.started()]
        total = sum(drafts, start=SpeculationStats())
        usage = Usage(self.num_prompt, self.num_completion, self.num_cached, graphs=self.request.graphs)
        if total.runs:
            return replace(usage, drafted_tokens=total.drafted, accepted_tokens=total.accepted)
        return usage

    def started(self) -> Iterator[Sequence]:
        """Its sequences in all loops, those that have ended too."""
        for call in self.loop_calls:
            yield from call.sequences

    def prompt_logprobs(self) -> tuple[TokenLogprobs, ...] | None:
        """Scores of the prompt's tokens from the second on, if they were asked for and are there."""
        scored = [sequence.scores for sequence in self.started() if sequence.scores is not None]
        return tuple(scored[0]) if scored else None

    def timings(self) -> Timings:
        """Wall seconds of the phases so far."""
        start, now = self.request.submitted, time.perf_counter()
        return Timings(
            queued=_between(start, self.admitted),
            first_token=_between(start, self.first_token),
            prefill=_between(self.admitted, self.first_token),
            decode=_between(self.first_token, self.last_token),
            graph=self.graph_seconds,
            total=now - start,
        )


def _between(start: float | None, stop: float | None) -> float | None:
    return None if start is None or stop is None else stop - start

"""Load shapes: how many requests, how they arrive, how long prompts and answers are. The same seed, the same load."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from genai_pipeline.errors import OptionError

Encode = Callable[[str], Sequence[int]]

_WARM_UP = -1  # the round of the warm-up, whose prompts no measured round repeats
_TEXT = (
    "river stone lantern market copper window garden letter winter harbour engine violet thunder ladder silver meadow "
    "bridge candle forest mirror pocket island basket hammer orange signal valley feather compass village ribbon "
    "anchor walnut sparrow kettle marble tunnel blanket cedar planet whistle saddle pepper curtain carries finds opens "
    "follows near beside under after before slowly quietly often seven twelve old bright empty the"
)
_WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True)
class Lengths:
    """A number of tokens, drawn evenly from [low, high] for each request."""

    low: int
    high: int

    @staticmethod
    def parse(text: str, param: str) -> Lengths:
        """``40`` or ``20-80``. Raises OptionError."""
        low, dash, high = text.partition("-")
        if not (low.isdecimal() and (high.isdecimal() if dash else not high)):
            raise OptionError(f"{param} is a number of tokens or a range such as 20-80, not '{text}'", param=param)
        lengths = Lengths(int(low), int(high or low))
        if not 1 <= lengths.low <= lengths.high:
            raise OptionError(f"{param} '{text}' is empty: it must rise from at least 1", param=param)
        return lengths

    def draw(self, source: random.Random) -> int:
        """One length."""
        return source.randint(self.low, self.high)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Job:
    """One request: its prompt, how many tokens it generates, and when it arrives (seconds after the start)."""

    tokens: tuple[int, ...]
    output_tokens: int
    arrival: float = 0.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Requests and how they come: ``concurrency`` at a time, or (None) each at its arrival."""

    jobs: tuple[Job, ...]
    concurrency: int | None

    def to_dict(self) -> dict[str, Any]:
        """The schedule as JSON-ready fields."""
        jobs = [[list(job.tokens), job.output_tokens, job.arrival] for job in self.jobs]
        return {"jobs": jobs, "concurrency": self.concurrency}

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Schedule:
        """The schedule of ``to_dict``."""
        jobs = tuple(Job(tuple(tokens), output, arrival) for tokens, output, arrival in fields["jobs"])
        return Schedule(jobs, fields["concurrency"])


@dataclass(frozen=True, slots=True)
class Load:
    """A closed load of ``concurrency`` clients, or an open one of ``rate`` requests per second (Poisson arrivals).

    ``shared_prefix`` tokens, the same for all requests, come before the prompt's own.
    """

    requests: int
    prompt_tokens: Lengths
    output_tokens: Lengths
    concurrency: int | None = None
    rate: float | None = None
    shared_prefix: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises OptionError for what no load can be."""
        if self.requests < 1:
            raise OptionError(f"requests must be at least 1, not {self.requests}", param="requests")
        if (self.concurrency is None) == (self.rate is None):
            raise OptionError(
                "a load is closed (concurrency) or open (rate): give one of them, not both", param="concurrency"
            )
        if self.concurrency is not None and self.concurrency < 1:
            raise OptionError(f"concurrency must be at least 1, not {self.concurrency}", param="concurrency")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise OptionError(f"rate must be a number of requests per second above 0, not {self.rate}", param="rate")
        if self.shared_prefix < 0:
            raise OptionError(f"shared_prefix must not be negative, as {self.shared_prefix} is", param="shared_prefix")

    @property
    def max_tokens(self) -> int:
        """Most tokens of a sequence, prompt and answer together."""
        return self.shared_prefix + self.prompt_tokens.high + self.output_tokens.high

    def schedule(self, encode: Encode, round: int) -> Schedule:
        """The requests of a round; rounds differ in their prompts, so that none finds another's in a cache."""
        prefix = _text_tokens(encode, self._source(round, "prefix"), self.shared_prefix)
        arrivals = self._arrivals(round)
        jobs = []
        for index, arrival in zip(range(self.requests), arrivals, strict=False):
            source = self._source(round, index)
            own = _text_tokens(encode, source, self.prompt_tokens.draw(source))
            jobs.append(Job(prefix + own, self.output_tokens.draw(source), arrival))
        return Schedule(tuple(jobs), self.concurrency)

    def warm_up(self, encode: Encode, requests: int) -> Schedule:
        """A closed load of the same lengths, all at once, to be run before anything is measured."""
        closed = replace(self, requests=requests, concurrency=requests, rate=None)
        return closed.schedule(encode, _WARM_UP)

    def to_dict(self) -> dict[str, Any]:
        """The load as JSON-ready fields."""
        fields: dict[str, Any] = {"requests": self.requests, "seed": self.seed, "shared_prefix": self.shared_prefix}
        fields |= {"prompt_tokens": [self.prompt_tokens.low, self.prompt_tokens.high]}
        fields |= {"output_tokens": [self.output_tokens.low, self.output_tokens.high]}
        return fields | ({"rate": self.rate} if self.concurrency is None else {"concurrency": self.concurrency})

    def __str__(self) -> str:
        how = f"{self.rate:g} per second" if self.concurrency is None else f"{self.concurrency} at a time"
        shared = f"{self.shared_prefix} shared and " if self.shared_prefix else ""
        return (
            f"{self.requests} requests, {how}; prompts of {shared}{self.prompt_tokens} tokens, "
            f"answers of {self.output_tokens} tokens"
        )

    def _source(self, *what: object) -> random.Random:
        return random.Random(":".join(map(str, (self.seed, *what))))

    def _arrivals(self, round: int) -> Iterator[float]:
        if self.rate is None:
            return itertools.repeat(0.0)
        source, rate = self._source(round, "arrivals"), self.rate
        return itertools.accumulate(source.expovariate(rate) for _ in range(self.requests))


def _text_tokens(encode: Encode, source: random.Random, count: int) -> tuple[int, ...]:
    """``count`` tokens of random words. Raises OptionError when the tokenizer makes nothing of words."""
    tokens: list[int] = []
    while len(tokens) < count:
        more = encode(" " + " ".join(source.choices(_WORDS, k=32)))
        if not more:
            raise OptionError("the package's tokenizer gives no tokens for English words", param="package")
        tokens += more
    return tuple(tokens[:count])

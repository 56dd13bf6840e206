"""What backends answer when each goes on from its own tokens: tokens and outputs of whole requests, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.cli.parity.compare import Divergence
from genai_pipeline.cli.parity.differences import Bounds, Difference, difference
from genai_pipeline.types import Result, TokenLogprobs

if TYPE_CHECKING:
    from genai_pipeline.pipeline import Pipeline

ENDED: Final = -1  # in place of a token: the answer has ended


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """An output, or a part of one, that is not the same on both sides; ``difference``: of numbers."""

    name: str
    values: tuple[str, str] | None = None
    difference: Difference | None = None

    def to_dict(self) -> dict[str, Any]:
        """The difference as JSON-ready fields."""
        if self.difference is not None:
            return {"output": self.name, **self.difference.to_dict()}
        return {"output": self.name, "values": list(self.values or ())}


@dataclass(frozen=True, slots=True)
class FreeRun:
    """One request compared. Outputs are looked at where the tokens are the same: what follows from others differs."""

    count: int  # tokens of the first side
    equal: int  # tokens before the first difference
    divergence: Divergence | None = None
    outputs: tuple[OutputDifference, ...] = ()
    largest: float = 0.0  # absolute difference of any number among the outputs

    def faults(self, margin: float) -> list[str]:
        """What is beyond tolerance, in words; tokens may differ where the first side prefers its own by no more."""
        apart = self.divergence
        found = []
        if apart is not None and (apart.margin is None or apart.margin > margin):
            ahead = "" if apart.margin is None else f", whose margin there is {apart.margin:.4g} nats"
            found.append(f"token {apart.index} is {_word(apart.package)}, not {_word(apart.reference)}{ahead}")
        for output in self.outputs:
            if output.difference is not None:
                one, other = output.difference.values
                found.append(f"output '{output.name}' is {other}, not {one}, at {list(output.difference.at or ())}")
            else:
                one, other = output.values or ("", "")
                found.append(f"output '{output.name}' is {other}, not {one}")
        return found

    def to_dict(self, margin: float) -> dict[str, Any]:
        """The comparison as JSON-ready fields."""
        return {
            "tokens": self.count,
            "equal": self.equal,
            "divergence": None if self.divergence is None else self.divergence.to_dict(),
            "outputs": [output.to_dict() for output in self.outputs],
            "max_absolute": self.largest,
            "faults": self.faults(margin),
        }


def run_once(pipe: Pipeline, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> Result:
    """One request to its end. Raises the error that ended it."""
    from genai_pipeline.engine.collect import collect_result

    with pipe.stream_run(inputs, **options) as events:
        return collect_result(events)


def compare_results(first: Result, other: Result, bounds: Bounds) -> FreeRun:
    """Two results of the same request."""
    tokens, others = first.tokens, other.tokens
    pairs = enumerate(zip(tokens, others, strict=False))
    place = next((index for index, (one, another) in pairs if one != another), min(len(tokens), len(others)))
    if place < max(len(tokens), len(others)):
        one, another = (answer[place] if place < len(answer) else ENDED for answer in (tokens, others))
        apart = Divergence(place, one, another, _margin(first.choices[0].logprobs, place))
        return FreeRun(len(tokens), place, apart)
    differences = _Outputs(bounds)
    differences.compare("", dict(first.outputs), dict(other.outputs))
    return FreeRun(len(tokens), place, None, tuple(differences.found), differences.largest)


def _margin(logprobs: tuple[TokenLogprobs, ...] | None, place: int) -> float | None:
    """By how much the first side's likeliest token is ahead of the next, in nats; None: not asked, or it is sure."""
    if logprobs is None or place >= len(logprobs) or len(logprobs[place].top) < 2:
        return None
    top = logprobs[place].top
    margin = top[0].logprob - top[1].logprob
    return margin if math.isfinite(margin) else None


def _word(token: int) -> str:
    return "the end" if token == ENDED else str(token)


@dataclass(slots=True)
class _Outputs:
    """Walks two outputs alike, down to texts and numbers."""

    bounds: Bounds
    found: list[OutputDifference] = field(default_factory=list)
    largest: float = 0.0

    def compare(self, name: str, one: Any, other: Any) -> None:
        """Compare two values of an output; ``name``: where they are, as in ``words[0].score``."""
        import numpy as np

        if type(one) is not type(other):
            self._apart(name, type(one).__name__, type(other).__name__)
        elif isinstance(one, float | np.ndarray | np.generic):
            self._numbers(name, np.asarray(one), np.asarray(other))
        elif isinstance(one, Mapping | list | tuple) or hasattr(one, "__dataclass_fields__"):
            self._inner(name, dict(_parts(one)), dict(_parts(other)))
        elif one != other:
            self._apart(name, one, other)

    def _inner(self, name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        if one.keys() != other.keys():
            self._apart(name, f"{len(one)} items", f"{len(other)} items")
            return
        for key, value in one.items():
            self.compare(f"{name}{key}".lstrip("."), value, other[key])

    def _numbers(self, name: str, one: Any, other: Any) -> None:
        apart = difference(one, other, self.bounds)
        self.largest = max(self.largest, apart.absolute)
        if apart.diverges:
            self.found.append(OutputDifference(name, difference=apart))

    def _apart(self, name: str, one: object, other: object) -> None:
        self.found.append(OutputDifference(name, (repr(one), repr(other))))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value consists of, by how one gets there."""
    if isinstance(value, Mapping):
        yield from ((f".{key}", inner) for key, inner in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", inner) for index, inner in enumerate(value))
    else:
        yield from ((f".{key}", getattr(value, key)) for key in value.__dataclass_fields__)

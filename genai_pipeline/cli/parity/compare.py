"""Answers of a package beside those of a reference: where they part, how close that was, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.cli.parity.answers import Answered, Reference, Top, forced, greedy

if TYPE_CHECKING:
    from genai_pipeline.pipeline import Pipeline

_NOTHING: Final = 1e-6  # probability that is only the rounding of a sum
_LEAST: Final = 1e-12  # probability that a logarithm is taken of


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What may differ: tokens where the reference's two likeliest are this close, and a prompt's mean KL; in nats."""

    margin: float = 1e-3
    kl: float = 5e-2


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where the tokens differ, and by how much the reference prefers its own to the next likeliest."""

    index: int
    reference: int
    package: int
    margin: float | None  # nats; None: neither side tells

    def to_dict(self) -> dict[str, Any]:
        """The place as JSON-ready fields."""
        return {"index": self.index, "reference": self.reference, "package": self.package, "margin": self.margin}


@dataclass(frozen=True, slots=True)
class Parity:
    """One prompt compared: ``kl`` at each place of the reference's answer, in nats; empty where it gives no odds."""

    text: str
    count: int
    equal: int  # tokens before the first difference
    divergence: Divergence | None
    kl: tuple[float, ...]

    @property
    def mean_kl(self) -> float | None:
        """Mean over the places."""
        return math.fsum(self.kl) / len(self.kl) if self.kl else None

    def faults(self, tolerance: Tolerance) -> list[str]:
        """What is beyond tolerance, in words; nothing when all is well."""
        found = []
        apart = self.divergence
        if apart is not None and (apart.margin is None or apart.margin > tolerance.margin):
            margin = "" if apart.margin is None else f", whose margin there is {apart.margin:.4g} nats"
            said = f"token {apart.index} is {apart.package}, not {apart.reference} as in the reference{margin}"
            found.append(said)
        if self.mean_kl is not None and self.mean_kl > tolerance.kl:
            found.append(f"the mean KL is {self.mean_kl:.4g} nats, more than {tolerance.kl:g}")
        return found

    def to_dict(self, tolerance: Tolerance) -> dict[str, Any]:
        """The comparison as JSON-ready fields."""
        return {
            "text": self.text,
            "tokens": self.count,
            "equal": self.equal,
            "divergence": None if self.divergence is None else self.divergence.to_dict(),
            "kl": list(self.kl),
            "mean_kl": self.mean_kl,
            "max_kl": max(self.kl, default=None),
            "faults": self.faults(tolerance),
        }


def compare(pipe: Pipeline, reference: Reference) -> list[Parity]:
    """Every prompt of the reference put to the package: greedy tokens, and the odds at each place of its answer."""
    found = []
    for answer in reference.answers:
        tokens = greedy(pipe, answer.prompt, len(answer.tokens))
        found.append(parity(answer, tokens, forced(pipe, answer.prompt, answer.tokens)))
    return found


def parity(answer: Answered, tokens: Sequence[int], tops: Sequence[Top]) -> Parity:
    """A reference's answer beside the package's own tokens, and its odds given the reference's."""
    pairs = enumerate(zip(answer.tokens, tokens, strict=True))
    apart = next((index for index, (theirs, ours) in pairs if theirs != ours), None)
    divergence = None
    if apart is not None:
        odds = answer.top[apart] if answer.top else tops[apart]
        divergence = Divergence(apart, answer.tokens[apart], tokens[apart], _margin(odds))
    kl = tuple(kl_of_tops(theirs, ours) for theirs, ours in zip(answer.top, tops, strict=bool(answer.top)))
    return Parity(answer.text, len(answer.tokens), len(tokens) if apart is None else apart, divergence, kl)


def _margin(top: Top) -> float | None:
    """By how much the likeliest token is ahead of the next, in nats."""
    margin = top[0].logprob - top[1].logprob if len(top) > 1 else math.inf
    return margin if math.isfinite(margin) else None


def kl_of_tops(theirs: Top, ours: Top) -> float:
    """KL(theirs, ours) in nats over the tokens that are among the likeliest of both, the others taken as one.

    Taking tokens together only lowers it: this is a lower bound, and exact where all tokens are listed.
    """
    q = _probabilities(ours)
    shared = {token: p for token, p in _probabilities(theirs).items() if token in q}
    rest = 1 - math.fsum(shared.values())
    total = math.fsum(p * (math.log(p) - math.log(q[token])) for token, p in shared.items())
    if rest > _NOTHING:
        total += rest * math.log(rest / max(_LEAST, 1 - math.fsum(q[token] for token in shared)))
    return max(0.0, total)


def _probabilities(top: Top) -> Mapping[int, float]:
    """Probabilities of tokens that can be at all."""
    found = {other.token: math.exp(other.logprob) for other in top}
    return {token: p for token, p in found.items() if p > 0}

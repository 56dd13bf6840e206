"""What a contestant measured of each request, and the figures made of it. All times are in seconds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Record:
    """One request: when it was due and when each token came, in seconds after the start of the load.

    An open load counts from the moment a request was due, not from when there was time to send it.
    """

    due: float
    tokens: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int | None = None  # None: the contestant does not say
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON-ready fields."""
        return asdict(self)

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Record:
        """The record of ``to_dict``."""
        return Record(**{**fields, "tokens": tuple(fields["tokens"])})


def figures(records: Sequence[Record]) -> dict[str, Any]:
    """Counts, rates and percentiles of a load; what cannot be measured is left out."""
    done = [record for record in records if record.error is None]
    answered = [record for record in done if record.tokens]
    wall = max((record.tokens[-1] for record in answered), default=None)
    prompt, output = sum(r.prompt_tokens for r in done), sum(len(r.tokens) for r in done)
    cached = None if any(r.cached_tokens is None for r in done) else sum(r.cached_tokens or 0 for r in done)
    found: dict[str, Any] = {
        "requests": len(records),
        "failed": len(records) - len(done),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "output_tokens": output,
        "wall_seconds": wall,
        "output_tokens_per_second": output / wall if wall else None,
        "total_tokens_per_second": (prompt + output) / wall if wall else None,
        "requests_per_second": len(answered) / wall if wall else None,
        "first_token_seconds": _percentiles([r.tokens[0] - r.due for r in answered]),
        "between_tokens_seconds": _percentiles(
            [later - earlier for r in answered for earlier, later in itertools.pairwise(r.tokens)]
        ),
        "request_seconds": _percentiles([r.tokens[-1] - r.due for r in answered]),
    }
    return {name: value for name, value in found.items() if value is not None}


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which ``percent`` of the sorted ``values`` lie, interpolated between neighbours."""
    assert values
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _percentiles(values: Sequence[float]) -> dict[str, float] | None:
    return {f"p{percent}": percentile(values, percent) for percent in PERCENTILES} if values else None


def medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each figure's median over rounds; figures that not every round has are left out."""
    first, *others = rounds
    found: dict[str, Any] = {}
    for name, value in first.items():
        if not all(name in other for other in others):
            continue
        values = [value, *(other[name] for other in others)]
        found[name] = medians(values) if isinstance(value, Mapping) else median(values)
    return found


# Figures in which two contestants are compared, and whether more of it is better.
COMPARED = {
    "output_tokens_per_second": True,
    "total_tokens_per_second": True,
    "first_token_seconds.p50": False,
    "first_token_seconds.p99": False,
    "between_tokens_seconds.p50": False,
    "between_tokens_seconds.p99": False,
}


def ratios(ours: Sequence[Mapping[str, Any]], peer: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How many times better than the peer, per figure: the median of the ratios of neighbouring rounds."""
    found: dict[str, float] = {}
    for name, more_is_better in COMPARED.items():
        pairs = [(figure(one, name), figure(other, name)) for one, other in zip(ours, peer, strict=True)]
        quotients = [(a / b if more_is_better else b / a) for a, b in pairs if a and b]
        if quotients:
            found[name] = median(quotients)
    return found


def figure(figures: Mapping[str, Any], path: str) -> float | None:
    """A figure by dotted path; None where it was not measured."""
    value: Any = figures
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return None if value is None else float(value)

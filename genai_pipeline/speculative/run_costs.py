"""What runs of one loop cost, learned from measured seconds: plain decode steps, tokens to verify, drafts.

Costs depend on how long sequences are, so they are kept by length, in buckets of doubling size; one that has not been
measured is taken from the nearest that has, shorter ones first. A step over so many rows and a verification of so
many tokens are interpolated between measured ones. Single measurements are not believed: each moves the estimate a
part of the way, and one that took more than twice as long as expected counts as twice as long.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

SMOOTHING = 0.25  # weight of the newest measurement, once there are a few
SHORTEST = 256  # tokens; sequences up to this length share a bucket
TOKEN_SHARE = 0.15  # of a step: what one more token is expected to cost before any verification
DRAFT_SHARE = 0.3  # of a step: what drafting one token is expected to cost before any was
OUTLIER = 2.0
SURPRISE = 2.0  # of a step: a verification that adds up to this much is believed, whatever was expected


class Load(NamedTuple):
    """What the loop is doing: ``rows`` that decode, ``drafting`` ones among them with drafts, tokens of the longest."""

    rows: int
    longest: int
    drafting: int = 1


class RunCosts:
    """Seconds of runs. ``runs_alone``: the kernels verify several tokens only for a row that runs by itself."""

    def __init__(self, *, runs_alone: bool) -> None:
        self.runs_alone = runs_alone
        self._steps: dict[int, dict[int, _Mean]] = {}  # length bucket -> rows -> seconds of a step
        self._extras: dict[int, dict[int, _Mean]] = {}  # length bucket -> more tokens than one -> their share of a step
        self._draft = _Mean()  # seconds per drafted token

    def stepped(self, rows: int, longest: int, seconds: float) -> None:
        """A run of one token for each of ``rows`` sequences took so long."""
        self._steps.setdefault(_bucket(longest), {}).setdefault(rows, _Mean()).add(seconds)

    def verified(self, load: Load, rows: int, extra: int, seconds: float) -> float:
        """A run over ``rows`` rows of ``load``, the widest with ``extra`` tokens more than one, took so long.

        Gives the seconds that it is believed to have added to the step.
        """
        step = self.step(rows, load.longest)
        if step is None:
            return 0.0
        share = max(0.0, seconds / step - 1) / rows
        extras = self._extras.setdefault(_bucket(load.longest), {})
        if extra not in extras:
            extras[extra] = _Mean(self._shares(extra, load.longest)[-1])
        believed = rows * extras[extra].add(share, floor=SURPRISE) * step
        if not self.runs_alone:
            return believed
        whole, others = self.step(load.rows, load.longest), self.step(load.rows - 1, load.longest)
        assert whole is not None
        assert others is not None
        return believed + step - max(0.0, whole - others)

    @property
    def knows_verification(self) -> bool:
        """Whether any was measured."""
        return bool(self._extras)

    def drafted(self, tokens: int, seconds: float) -> None:
        """Drafting so many tokens, over all sequences, took so long."""
        self._draft.add(seconds / tokens)

    def step(self, rows: int, longest: int) -> float | None:
        """Seconds of a plain step; 0 without rows, None while nothing has been measured."""
        if rows == 0:
            return 0.0
        steps = _nearest(self._steps, longest)
        return None if steps is None else _between(steps, rows)

    def extras(self, most: int, load: Load, *, drafts_cost: bool) -> list[float]:
        """Seconds that drafting and verifying k tokens for one row adds to a step of ``load``, for k in [1, most]."""
        step = self.step(load.rows, load.longest)
        assert step is not None
        shares = self._shares(most, load.longest)
        draft = self._draft.value if self._draft.value is not None else DRAFT_SHARE * step
        drafting = draft if drafts_cost else 0.0
        if not self.runs_alone:
            widening = step * load.rows / load.drafting  # rows that draft are widened together
            return [k * drafting + share * widening for k, share in enumerate(shares, 1)]
        single, others = self.step(1, load.longest), self.step(load.rows - load.drafting, load.longest)
        assert single is not None
        assert others is not None
        saved = max(0.0, step - others) / load.drafting
        return [k * drafting + (1 + share) * single - saved for k, share in enumerate(shares, 1)]

    def _shares(self, most: int, longest: int) -> list[float]:
        """What k tokens more than one cost a run of one row, as a share of its step, for k in [1, most]."""
        extras = _nearest(self._extras, longest)
        if not extras:
            return [TOKEN_SHARE * k for k in range(1, most + 1)]
        known = sorted((count, mean.value) for count, mean in extras.items() if mean.value is not None)
        shares: list[float] = []
        low, value = 0, 0.0
        for high, next_value in known:
            slope = (next_value - value) / (high - low)
            shares += [value + slope * (k - low) for k in range(low + 1, high + 1)]
            low, value = high, next_value
        shares += [value * k / low for k in range(low + 1, most + 1)]
        return shares[:most]


class _Mean:
    """A smoothed measurement."""

    __slots__ = ("_count", "value")

    def __init__(self, expected: float | None = None) -> None:
        self.value = expected
        self._count = 0 if expected is None else 1

    def add(self, measured: float, floor: float = 0.0) -> float:
        """Take in one more measurement, cut to twice the estimate or ``floor``; gives what was taken in."""
        self._count += 1
        if self.value is None:
            self.value = measured
            return measured
        cut = min(measured, max(floor, OUTLIER * self.value))
        self.value += max(SMOOTHING, 1 / self._count) * (cut - self.value)
        return cut


def _bucket(longest: int) -> int:
    return max(longest - 1, SHORTEST - 1).bit_length()


def _nearest(by_bucket: Mapping[int, dict[int, _Mean]], longest: int) -> dict[int, _Mean] | None:
    """What was measured at a length, or nearest to it."""
    wanted = _bucket(longest)
    bucket = min(by_bucket, key=lambda bucket: (abs(bucket - wanted), bucket), default=None)
    return None if bucket is None else by_bucket[bucket]


def _between(steps: Mapping[int, _Mean], rows: int) -> float:
    """Interpolated between measured numbers of rows; outside of them the nearest, so that no saving is assumed."""
    counts = sorted(steps)
    high = min(bisect_left(counts, rows), len(counts) - 1)
    low = max(0, high - 1) if counts[high] > rows else high
    first, second = steps[counts[low]].value, steps[counts[high]].value
    assert first is not None
    assert second is not None
    if counts[low] == counts[high] or rows <= counts[low] or rows >= counts[high]:
        return first if rows <= counts[low] else second
    return first + (rows - counts[low]) / (counts[high] - counts[low]) * (second - first)

"""How many tokens to draft for a sequence now, so that the loop makes the most tokens per second.

A plain step makes R tokens, one per decoding row, in T seconds. With k drafts for one row it takes X(k) more and makes
E(k) - 1 more tokens on average (``acceptance.expected_tokens``), so the best k is the one with the largest
(R + E(k) - 1) / (T + X(k)); where that is 0, drafting does not pay.

**What may be lost is bounded.** Time spent on drafts is counted in the tokens that plain steps would have made of it.
An account holds what may be spent before it comes back: it begins with ``CREDIT`` tokens, gains ``PROBE_SHARE`` of each
token, loses what drafts cost and gains what they bring, and never holds more than ``CREDIT`` tokens per decoding row.
A draft that could overdraw it is made shorter or not at all. Where drafts do not pay by what has been learned, one
token is drafted when the account is half full, so that a text that becomes predictable is found out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genai_pipeline.speculative.acceptance import Acceptance, expected_tokens
from genai_pipeline.speculative.drafter import Source
from genai_pipeline.speculative.run_costs import Load, RunCosts

CREDIT = 1.5  # tokens
PROBE_AT = 0.75  # tokens per decoding row in the account, from which on a probe is made
PROBE_SHARE = 0.015  # of all tokens
MOMENT = 1e-9  # seconds: no step is shorter, whatever single measurements make of it


class DraftLength:
    """Decides for the sequences of one loop. Gives the same answers for the same calls: it looks at no clock.

    ``drafts_cost``: whether making drafts takes time, as with a draft model.
    """

    def __init__(self, *, runs_alone: bool, drafts_cost: bool) -> None:
        self.costs = RunCosts(runs_alone=runs_alone)
        self.acceptance = Acceptance()
        self._drafts_cost = drafts_cost
        self._account = CREDIT
        self._charged: dict[int, float] = {}  # tokens, by sequence: for drafts that have not been verified yet

    def choose(self, sequence: int, source: Source, load: Load, most: int) -> int:
        """Tokens to draft, at most ``most``, charged to the account.

        0 when it does not pay, or before the first plain step was measured. The first ever verified is one token.
        """
        self._account += self._charged.pop(sequence, 0.0)  # for drafts that were never verified
        step = self.costs.step(load.rows, load.longest)
        if not step or most < 1:
            return 0
        extras = self.costs.extras(most, load, drafts_cost=self._drafts_cost)
        best = best_length(self.acceptance.rate(sequence, source), step, load.rows, extras)
        if best == 0 and self._account >= PROBE_AT * load.rows:
            best = 1
        spent = [_tokens(extra, step, load) for extra in extras[:best]]
        while spent and (spent[-1] > self._account or (len(spent) > 1 and not self.costs.knows_verification)):
            spent.pop()
        if spent:
            self._charged[sequence] = spent[-1]
            self._account -= spent[-1]
        return len(spent)

    def stepped(self, load: Load, seconds: float) -> None:
        """A plain decode run over ``load.rows`` rows took so long."""
        self.costs.stepped(load.rows, load.longest, seconds)
        self._earn(load.rows * PROBE_SHARE, load)

    def verified(self, load: Load, rows: int, widest: int, checked: Mapping[int, int], seconds: float) -> None:
        """A run that verified drafts took so long.

        ``load`` is that of the whole step; the run had ``rows`` rows, the widest with ``widest`` drafts, of which so
        many were accepted by sequence (``checked``).
        """
        believed = self.costs.verified(load, rows, widest, seconds)
        step = self.costs.step(load.rows, load.longest)
        charged = sum(self._charged.pop(sequence, 0.0) for sequence in checked)
        spent = _tokens(believed, step, load) if step else charged
        self._earn(charged - spent + sum(checked.values()) + rows * PROBE_SHARE, load)

    def drafted(self, load: Load, tokens: int, seconds: float, catching_up: float) -> None:
        """Drafting ``tokens`` tokens took ``seconds``, after ``catching_up`` with what had come meanwhile."""
        if tokens:
            self.costs.drafted(tokens, seconds)
        step = self.costs.step(load.rows, load.longest)
        if step:
            self._earn(-_tokens(seconds + catching_up, step, load), load)

    def forget(self, sequence: int) -> None:
        """A sequence has ended."""
        self.acceptance.forget(sequence)
        self._charged.pop(sequence, None)

    def _earn(self, tokens: float, load: Load) -> None:
        self._account = min(CREDIT * load.rows, self._account + tokens)


def best_length(rate: float, step: float, rows: int, extras: Sequence[float]) -> int:
    """The number of drafts with the most tokens per second, the smallest among equals; X(k) is ``extras[k - 1]``."""
    best, speed = 0, rows / step
    for k, extra in enumerate(extras, 1):
        made = (rows + expected_tokens(rate, k) - 1) / max(step + extra, MOMENT)
        if made > speed:
            best, speed = k, made
    return best


def _tokens(seconds: float, step: float, load: Load) -> float:
    """The tokens that plain steps would have made in this time."""
    return seconds / step * load.rows

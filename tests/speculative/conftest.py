from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from genai_pipeline.speculative.drafter import Drafter, Proposal, Source, Target, Want
from genai_pipeline.speculative.speculation import Speculation, Verified


@dataclass
class Text:
    """A sequence that drafts are made for."""

    id: int
    tokens: list[int] = field(default_factory=list)


@pytest.fixture
def text() -> Callable[..., Text]:
    return lambda tokens, id=1: Text(id, list(tokens))


@dataclass
class Guesser(Drafter):
    """Guesses each next token rightly with a given probability, so that acceptances are known beforehand."""

    rate: Callable[[int], float]  # by the number of tokens there are
    name: Callable[[int], str] = lambda at: "guess"
    prior: float = 0.5
    most: int = 8
    free: bool = True
    seconds: float = 0.0  # per drafted token
    forgotten: list[int] = field(default_factory=list)
    asked: int = 0

    def source(self, target: Target) -> Source | None:
        at = len(target.tokens)
        return Source(self.name(at), self.prior) if self.rate(at) >= 0 else None

    def propose(self, wants: Sequence[Want]) -> Proposal:
        self.asked += len(wants)
        drafts = tuple(tuple(range(want.most)) for want in wants)
        return Proposal(drafts, self.seconds * sum(map(len, drafts)))

    def forget(self, sequence: int) -> None:
        self.forgotten.append(sequence)


@dataclass
class Machine:
    """Runs a loop with known costs: the seconds of a step over b rows, and of a run of n tokens for one row more."""

    speculation: Speculation
    drafter: Guesser
    step: Callable[[int], float]
    verify: Callable[[int, int], float]  # rows, tokens of the widest
    seed: int = 7
    seconds: float = 0.0
    drafted: list[int] = field(default_factory=list)

    def run(self, texts: Sequence[Text], tokens: int) -> float:
        """Make at least so many tokens for each text; gives the tokens per second."""
        random = Random(self.seed)
        goals = {text.id: len(text.tokens) + tokens for text in texts}
        start, before = self.seconds, sum(len(text.tokens) for text in texts)
        while going := [text for text in texts if len(text.tokens) < goals[text.id]]:
            wants = [Want(text, goals[text.id] - len(text.tokens) - 1) for text in going]
            drafts = self.speculation.propose(wants, len(going))
            self.drafted.append(sum(map(len, drafts.values())))
            self.seconds += self.drafter.seconds * self.drafted[-1]
            for group in self._runs(going, drafts):
                self._run(group, drafts, random)
        return (sum(len(text.tokens) for text in texts) - before) / (self.seconds - start)

    def _runs(self, going: list[Text], drafts: dict[int, tuple[int, ...]]) -> list[list[Text]]:
        if not self.speculation.lengths.costs.runs_alone:
            return [going]
        plain = [text for text in going if text.id not in drafts]
        return [*([plain] if plain else []), *([text] for text in going if text.id in drafts)]

    def _run(self, group: list[Text], drafts: dict[int, tuple[int, ...]], random: Random) -> None:
        widest = max(len(drafts.get(text.id, ())) for text in group)
        seconds = self.verify(len(group), widest + 1) if widest else self.step(len(group))
        self.seconds += seconds
        rows = []
        for text in group:
            drafted, accepted = len(drafts.get(text.id, ())), 0
            while accepted < drafted and random.random() < self.drafter.rate(len(text.tokens) + accepted):
                accepted += 1
            rows.append(Verified(text.id, len(text.tokens) - 1, drafted, accepted))
            text.tokens += [0] * (accepted + 1)
        self.speculation.ran(rows, seconds)


@pytest.fixture
def machine() -> Callable[..., Machine]:
    def make(
        rate: Callable[[int], float],
        *,
        verify: Callable[[int, int], float],
        step: Callable[[int], float] = lambda rows: 20.0,
        runs_alone: bool = False,
        **guesser: Any,
    ) -> Machine:
        drafter = Guesser(rate, **guesser)
        return Machine(Speculation(drafter, runs_alone=runs_alone), drafter, step, verify)

    return make

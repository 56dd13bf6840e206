from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.speculative.draft_length import DraftLength
from genai_pipeline.speculative.drafter import Drafter, Proposal, Source, Want
from genai_pipeline.testing import TinyPackage, write_draft, write_package

Open = Callable[..., tuple[gp.Pipeline, TinyPackage]]
Truth = Mapping[tuple[tuple[int, ...], int], Sequence[int]]  # (prompt, choice) -> its answer without drafts


@pytest.fixture
def open_tiny(tmp_path: Path) -> Iterator[Open]:
    """Writes a closed-form package and loads it; every pipeline is closed after the test.

    ``draft``: changes that make a package which drafts for it.
    """
    pipes: list[gp.Pipeline] = []

    def open_(
        kind: str = "kv",
        *,
        load: dict[str, Any] | None = None,
        draft: dict[str, Any] | None = None,
        **options: Any,
    ) -> tuple[gp.Pipeline, TinyPackage]:
        package = write_package(tmp_path / f"package{len(pipes)}", kind, **options)
        arguments = load or {}
        if draft is not None:
            arguments = {**arguments, "draft": write_draft(tmp_path / f"draft{len(pipes)}", package, **draft)}
        pipes.append(gp.load(package.path, **arguments))
        return pipes[-1], package

    yield open_
    for pipe in pipes:
        pipe.close()


class AsManyAsFit(DraftLength):
    """Drafts whatever fits, whether or not it pays: what is drafted does not depend on a clock."""

    def choose(self, sequence: int, source: Source, load: Any, most: int) -> int:
        return most


class Foresight(Drafter):
    """Knows the answers, or one to all prompts, and drafts them; each token is wrong with the given probability."""

    def __init__(self, truth: Truth | Sequence[int], *, wrong: float = 0.0, most: int = 8) -> None:
        self.truth = truth
        self.wrong = wrong
        self.most_tokens = most
        self._random = random.Random(0)

    @property
    def most(self) -> int:
        return self.most_tokens

    @property
    def free(self) -> bool:
        return True

    def source(self, target: Any) -> Source | None:
        return Source("foresight", 0.5)

    def propose(self, wants: Sequence[Want]) -> Proposal:
        return Proposal(tuple(tuple(self._draft(want)) for want in wants))

    def forget(self, sequence: int) -> None:
        pass

    def _draft(self, want: Want) -> list[int]:
        target: Any = want.target
        answer = self.truth
        if isinstance(answer, Mapping):
            answer = answer.get((tuple(target.tokens[: target.num_prompt]), target.choice), ())
        draft = list(answer[target.num_generated : target.num_generated + want.most])
        for index in range(len(draft)):
            if self._random.random() < self.wrong:
                draft[index] = self._random.randrange(6, 40)
        return draft


@pytest.fixture
def eager() -> Callable[..., None]:
    """``eager(pipe, drafter)``: let a pipeline loaded with ``draft=`` draft as much as fits, with its own drafter or
    another one."""

    def make(pipe: Any, drafter: Drafter | None = None) -> None:
        for loop in pipe._assembly.engine._loops.values():
            speculation = loop.drafting._speculation
            costs = speculation.lengths
            speculation.lengths = AsManyAsFit(runs_alone=costs.costs.runs_alone, drafts_cost=False)
            if drafter is not None:
                speculation._drafter = drafter

    return make


@pytest.fixture
def foresight() -> Callable[..., Drafter]:
    """``foresight(truth, wrong=p, most=k)``: a drafter that knows the answers."""
    return Foresight

"""A beam search in one loop: its beams are sequences that take every step together, its answers come at the end.

Each beam runs like any sequence, in any company, but offers its best tokens in place of choosing one, and then waits.
When all have offered, the search says which hypotheses go on: the first one that continues a beam stays in its
sequence, each further one takes over a sequence whose own hypothesis was dropped, with the state of the other from the
token on where they part. So all beams are equally long, and nothing runs but next tokens. Where there are fewer
hypotheses than sequences, as at the start, the rest go along with the best one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from genai_pipeline.engine.admission import Bounds
from genai_pipeline.engine.answer_form import AnswerForm
from genai_pipeline.engine.sequence import NO_ROW, Sequence
from genai_pipeline.errors import CapacityError, OptionError, RequestError
from genai_pipeline.sampling.beams import BeamSearch, Hypothesis, Offer
from genai_pipeline.sampling.params import GenerationOptions
from genai_pipeline.sampling.state import Chosen, sampling_state
from genai_pipeline.scheduler.budget import pages_for

if TYPE_CHECKING:
    from genai_pipeline.engine.decode_loop import DecodeLoop


class Search:
    """One search. ``answers`` never run: the best hypotheses become theirs. ``beams`` run, the best first."""

    def __init__(self, answers: list[Sequence], beams: list[Sequence], search: BeamSearch) -> None:
        self.request = answers[0].request
        self.loop = answers[0].loop
        self.answers = answers
        self.beams = beams
        self._search = search
        self._offers: dict[int, Offer] = {}  # sequence -> what may follow it
        for beam in beams:
            beam.search = self

    @property
    def width(self) -> int:
        """Tokens that each beam has to offer."""
        return self._search.width

    @property
    def over(self) -> bool:
        """Whether the answers are there."""
        return self._search.over

    @property
    def ready(self) -> bool:
        """Whether all beams have a row and are computed, and those that hold a hypothesis have offered."""
        computed = all(beam.row != NO_ROW and beam.num_computed == len(beam.tokens) for beam in self.beams)
        return computed and all(beam.id in self._offers for beam in self._holders)

    def offer(self, beam: Sequence, tokens: Offer) -> None:
        """A beam has computed its last token; one that was preempted may do so again."""
        self._offers[beam.id] = tokens

    def advance(self, loop: DecodeLoop) -> None:
        """Let the beams take the next step, or end the search. Raises RequestError when that finds too little."""
        self._search.advance([self._offers[beam.id] for beam in self._holders])
        self._offers.clear()
        found = self._search.beams
        if not found:
            self._check_found()
            return
        going = [*found, *[found[0]] * (len(self.beams) - len(found))]
        self.beams = list(self._placed([hypothesis.parent for hypothesis in going], loop))
        for beam, hypothesis in zip(self.beams, going, strict=True):
            _append(beam, hypothesis.tokens[-1])

    def found(self) -> list[tuple[Sequence, Hypothesis]]:
        """The answers with their hypotheses, best first, once the search is over."""
        return list(zip(self.answers, self._search.finished, strict=False))

    @property
    def _holders(self) -> list[Sequence]:
        """The beams that hold a hypothesis."""
        return self.beams[: len(self._search.beams)]

    def _placed(self, parents: list[int], loop: DecodeLoop) -> Iterator[Sequence]:
        """The sequences in which hypotheses go on that continue the beams of these ranks."""
        free = deque(beam for rank, beam in enumerate(self.beams) if rank not in parents)
        stayed: set[int] = set()
        for rank in parents:
            parent = self.beams[rank]
            if rank in stayed:
                beam = free.popleft()
                _follow(beam, parent, loop)
                yield beam
            else:
                stayed.add(rank)
                yield parent

    def _check_found(self) -> None:
        count, wanted = len(self._search.finished), len(self.answers)
        if count < wanted:
            message = f"the beam search found {count} answers, and n asks for {wanted}: no other tokens may be chosen"
            raise RequestError(message, param="n", hint="ask for fewer, or forbid and force less")


class SearchQueue:
    """The searches of one loop: they run as long as all fit at once, the others wait, the first to come first.

    A beam waits for the others of its search with its row and its pages. As all beams of all searches that run have
    room beside each other, however long they get, none can wait for one that cannot enter.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._rows = bounds.max_rows
        self._pages = bounds.num_pages
        self._waiting: deque[Search] = deque()
        self._running: list[Search] = []

    def add(self, search: Search) -> None:
        """Queue a search."""
        self._waiting.append(search)

    def leave(self, search: Search) -> None:
        """Forget a search, whether it runs or waits. Harmless when it has left."""
        if search in self._running:
            self._running.remove(search)
        elif search in self._waiting:
            self._waiting.remove(search)

    def enter(self) -> Iterator[Search]:
        """The searches that may start now."""
        while self._waiting and self._fits(self._waiting[0]):
            search = self._waiting.popleft()
            self._running.append(search)
            yield search

    def _fits(self, search: Search) -> bool:
        all_of_them = [*self._running, search]
        rows = sum(len(other.beams) for other in all_of_them)
        return rows <= self._rows and sum(map(_most_pages, all_of_them)) <= self._pages


def check_search(options: GenerationOptions, form: AnswerForm, bounds: Bounds) -> None:
    """Refuse a search that cannot be. Raises OptionError or CapacityError."""
    if options.num_beams == 1:
        return
    reasons = {
        "tools": form.options.tools is not None,
        "reasoning_budget": form.options.budget is not None,
        "" if form.constraint is None else form.constraint.param: form.constraint is not None,
    }
    for name, given in reasons.items():
        if given:
            message = f"{name} does not go with num_beams, which is {options.num_beams}"
            raise OptionError(message, param=name, hint="set num_beams to 1")
    if options.num_beams > bounds.max_rows:
        raise CapacityError(
            f"num_beams is {options.num_beams}, and this pipeline runs {bounds.max_rows} sequences at once",
            hint="ask for fewer, or load the package with a larger max_batch or more memory",
        )


def _most_pages(search: Search) -> int:
    """Pages that all beams of a search take at most, with one each that the scheduler keeps free for growth."""
    longest = search.answers[0]
    return len(search.beams) * (pages_for(longest.num_prompt + longest.max_tokens) + 1)


def _follow(beam: Sequence, parent: Sequence, loop: DecodeLoop) -> None:
    """Let a beam be the same as another: tokens, state, and what options remember."""
    tokens = parent.tokens
    same = next(
        (i for i, (own, other) in enumerate(zip(beam.tokens, tokens, strict=True)) if own != other), len(tokens)
    )
    loop.graft(parent, beam, same)
    beam.tokens = list(tokens)
    if parent.sampling is not None:
        beam.sampling = sampling_state(beam.options, tokens[: parent.num_prompt], parent.sampling.times)
        for token in tokens[parent.num_prompt :]:
            _remember(beam, token)


def _append(beam: Sequence, token: int) -> None:
    beam.tokens.append(token)
    _remember(beam, token)


def _remember(beam: Sequence, token: int) -> None:
    if beam.sampling is not None:
        beam.sampling.accept(Chosen(token))

"""Graph runs outside loops that wait for the side lane: which of them share the next run. Integers and keys only."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

from genai_pipeline.scheduler.plan import SideRun
from genai_pipeline.scheduler.policy import Rank
from genai_pipeline.scheduler.ticket import Priority


@dataclass(frozen=True, slots=True)
class JobTicket:
    """One run of a stage that a request asks for; jobs with equal stage and ``batch_key`` may share a run."""

    job: int
    stage: str
    batch_key: Hashable = None
    priority: Priority = Priority.NORMAL
    key: str = ""
    nbytes: int = 0  # of its inputs


@dataclass(slots=True)
class WaitingJob:
    """A job in the queue, with what policies rank by."""

    ticket: JobTicket
    arrival: int
    since: int


SIDE_BYTES = 4 << 20  # inputs of one run: large ones gain nothing from company, and what they make would pile up


def _together(jobs: Iterable[WaitingJob]) -> Iterator[WaitingJob]:
    """The first job, and those after it as long as their inputs are small together."""
    total = 0
    for number, job in enumerate(jobs):
        total += job.ticket.nbytes
        if number and total > SIDE_BYTES:
            return
        yield job


class SideQueue:
    """Jobs in the order of the policy; one batch at a time is in the lane, so that nothing piles up behind it."""

    def __init__(self, max_batch: int) -> None:
        self._max_batch = max_batch
        self._waiting: dict[int, WaitingJob] = {}
        self._busy = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def can_start(self) -> bool:
        """Whether the next plan starts a run."""
        return bool(self._waiting) and not self._busy

    def add(self, job: WaitingJob) -> None:
        """Queue a job."""
        self._waiting[job.ticket.job] = job

    def forget(self, job: int) -> JobTicket | None:
        """Take a job out, if it still waits."""
        waiting = self._waiting.pop(job, None)
        return None if waiting is None else waiting.ticket

    def start(self, rank: Callable[[WaitingJob], Rank]) -> SideRun | None:
        """The next run: the most important job and, in order, those that may share its run. None while one is busy."""
        if not self.can_start:
            return None
        first, *others = sorted(self._waiting.values(), key=rank)
        wanted = (first.ticket.stage, first.ticket.batch_key)
        mates = [job for job in others if (job.ticket.stage, job.ticket.batch_key) == wanted]
        chosen = list(_together([first, *mates][: self._max_batch]))
        for job in chosen:
            del self._waiting[job.ticket.job]
        self._busy = True
        return SideRun(first.ticket.stage, tuple([job.ticket.job for job in chosen]))

    def ended(self) -> None:
        """The run in the lane is over."""
        assert self._busy
        self._busy = False

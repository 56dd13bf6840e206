"""Plans each engine step from counters and budgets: decode rows first, then prefill chunks. Integers only.

**Who may run.** A sequence enters with pages for all tokens it has and one more, and takes further pages as it grows.
When pages are short, the least important running sequences are preempted, never the most important one; each
sequence fits the pool alone (``submit`` asserts it, admission refuses what does not), so the most important one always
finishes, and then the next: nobody is stuck. Waiting raises importance (``policy.level``), so nobody starves. Work
that waits holds no row and no page.

Jobs, the graph runs outside loops, wait in a queue of their own (``side_queue``) under the same policy.

The scheduler knows sequences by id; it never sees tokens, arrays or graphs, so it is tested without a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from genai_pipeline.scheduler.budget import Budget, Costs
from genai_pipeline.scheduler.chunks import prefill_runs
from genai_pipeline.scheduler.plan import Preemption, Run, Span, StepPlan
from genai_pipeline.scheduler.policy import ByPriority, Policy, Ranked, level
from genai_pipeline.scheduler.shares import Shares
from genai_pipeline.scheduler.side_queue import JobTicket, SideQueue, WaitingJob
from genai_pipeline.scheduler.ticket import Ticket, Tracked


class Scheduler:
    """Continuous batching over the decode loops of one engine; each loop has its own rows and pages."""

    def __init__(
        self,
        budgets: Mapping[str, Budget],
        policy: Policy | None = None,
        costs: Costs | None = None,
        *,
        side_batch: int = 1,
    ) -> None:
        self._budgets = budgets
        self._policy = policy or ByPriority()
        self._free_pages = {loop: budget.num_pages for loop, budget in budgets.items()}
        self._waiting: dict[int, Tracked] = {}
        self._running: dict[int, Tracked] = {}
        self._side = SideQueue(side_batch)
        self._shares = Shares()
        self._entered: tuple[int, ...] = ()  # by the latest plan: they first run in the next one
        self._step = 0
        self._arrivals = 0
        self.costs = costs or Costs()
        self.prefill_beside = {loop: budget.prefill_tokens for loop, budget in budgets.items()}

    @property
    def num_waiting(self) -> int:
        """Sequences that hold neither row nor pages, and jobs that have not started."""
        return len(self._waiting) + len(self._side)

    @property
    def num_running(self) -> int:
        """Sequences that own a row."""
        return len(self._running)

    @property
    def can_start_job(self) -> bool:
        """Whether a job waits and the side lane is free."""
        return self._side.can_start

    def free_pages(self, loop: str) -> int:
        """Pages of a loop that no sequence holds."""
        return self._free_pages[loop]

    def submit(self, ticket: Ticket) -> None:
        """Queue a sequence."""
        assert 0 < ticket.num_tokens <= ticket.max_tokens
        tracked = Tracked(ticket, self._arrivals, self._step, ticket.num_tokens)
        most = self._budgets[ticket.loop].num_pages
        assert tracked.pages(ticket.max_tokens) <= most, "admission refuses what never fits"
        self._waiting[ticket.sequence] = tracked
        self._arrivals += 1
        self._shares.enter(ticket.key)

    def submit_job(self, ticket: JobTicket) -> None:
        """Queue a graph run outside loops."""
        self._side.add(WaitingJob(ticket, self._arrivals, self._step))
        self._arrivals += 1
        self._shares.enter(ticket.key)

    def forget_job(self, job: int) -> bool:
        """Take back a job, if it has not started."""
        ticket = self._side.forget(job)
        if ticket is not None:
            self._shares.leave(ticket.key)
        return ticket is not None

    def end_side_run(self, keys: Iterable[str]) -> None:
        """The run in the side lane is over; ``keys`` are those of its jobs."""
        self._side.ended()
        for key in keys:
            self._shares.leave(key)

    def advance(self, sequence: int, num_computed: int, num_tokens: int) -> None:
        """Record what a committed run, or state that was restored, brought: computed tokens, and all known tokens.

        What comes between the plan that admits a sequence and the next one was restored, and is no use of the machine.
        """
        tracked = self._running[sequence]
        assert tracked.num_computed <= num_computed <= num_tokens
        if sequence not in self._entered:
            self._shares.serve(tracked.ticket.key, num_computed - tracked.num_computed)
        tracked.num_computed, tracked.num_tokens = num_computed, num_tokens
        if tracked.draft_pages:
            self._return_draft_pages(tracked)

    def decodes(self, sequence: int) -> bool:
        """Whether a sequence runs and all but its last token are computed."""
        tracked = self._running.get(sequence)
        return tracked is not None and tracked.decoding

    def room_for_drafts(self, sequence: int) -> int:
        """Most tokens that may be drafted for the next step of a decoding sequence."""
        tracked = self._running[sequence]
        return max(0, tracked.ticket.max_tokens - tracked.num_tokens - 1)

    def draft(self, sequence: int, count: int) -> None:
        """Have the next decode step of a sequence verify up to ``count`` drafts; fewer where pages are short."""
        self._running[sequence].num_drafts = count

    def finish(self, sequence: int) -> None:
        """Forget a sequence, whether it runs or waits."""
        tracked = self._running.pop(sequence, None)
        if tracked is not None:
            self._give_back(tracked)
        else:
            tracked = self._waiting.pop(sequence, None)
        if tracked is not None:
            self._shares.leave(tracked.ticket.key)

    def plan(self) -> StepPlan:
        """The next step; empty when nothing can run."""
        self._step += 1
        preempted: list[Preemption] = []
        if len(self._running) > 1:
            preempted += self._grow()
        else:
            for tracked in self._running.values():
                self._take(tracked, tracked.num_tokens)
        ready = tuple(self._running.values())
        admitted = self._entered = self._admit(preempted) if self._waiting else ()
        gone = {preemption.sequence for preemption in preempted}
        stayed = [tracked for tracked in ready if tracked.ticket.sequence not in gone] if gone else ready
        side = self._side.start(self._rank) if self._side.can_start else None
        return StepPlan(tuple(self._runs(stayed)), admitted, tuple(preempted), side)

    def _runs(self, running: Iterable[Tracked]) -> Iterator[Run]:
        by_loop: dict[str, list[Tracked]] = {}
        for tracked in running:
            by_loop.setdefault(tracked.ticket.loop, []).append(tracked)
        for loop, members in by_loop.items():
            decode = tuple([self._decode_span(t) for t in members if t.decoding])
            if decode:
                yield Run("decode", loop, decode)
            if len(decode) < len(members):
                budget = self._budgets[loop]
                tokens = self.prefill_beside[loop] if decode else budget.prefill_tokens
                batch = min(budget.prefill_batch, budget.prefill_tokens)
                todo = self._ranked(t for t in members if t.todo and not t.decoding)
                for spans in prefill_runs(todo, tokens=tokens, batch=batch, num_decoding=len(decode)):
                    yield Run("prefill", loop, spans)

    def _decode_span(self, tracked: Tracked) -> Span:
        """The next token of a sequence, and the drafts after it for which there are pages: nobody leaves for drafts."""
        drafts, tracked.num_drafts = tracked.num_drafts, 0
        held = tracked.num_pages
        while drafts and not self._take(tracked, tracked.num_tokens + drafts):
            drafts -= 1
        tracked.draft_pages = tracked.num_pages - held
        stop = tracked.num_tokens + drafts
        return Span(tracked.ticket.sequence, tracked.num_computed, stop, samples=True, num_drafts=drafts)

    def _grow(self) -> Iterator[Preemption]:
        """Give every running sequence the pages of its next token, preempting the least important when they lack."""
        order = [t for t in self._running.values() if t.pages(t.num_tokens) > t.num_pages]
        for tracked in self._ranked(order):
            while tracked.ticket.sequence in self._running and not self._take(tracked, tracked.num_tokens):
                yield self._preempt(self._victim(tracked.ticket.loop))

    def _admit(self, preempted: list[Preemption]) -> tuple[int, ...]:
        """Let waiting sequences in, most important first; the first that does not fit closes its loop's door."""
        admitted: list[int] = []
        closed: set[str] = set()
        for tracked in list(self._ranked(self._waiting.values())):
            loop = tracked.ticket.loop
            if loop in closed or self._waits_for_fork(tracked):
                continue
            fresh = set(admitted)
            while not self._fits(tracked):
                victim = self._lower(tracked, fresh)
                if victim is None:
                    closed.add(loop)
                    break
                preempted.append(self._preempt(victim))
            else:
                self._enter(tracked)
                admitted.append(tracked.ticket.sequence)
        return tuple(admitted)

    def _fits(self, tracked: Tracked) -> bool:
        """Whether a row is free, and pages for what it has, one token more, and one page of growth per running row."""
        loop = tracked.ticket.loop
        rows = sum(1 for other in self._running.values() if other.ticket.loop == loop)
        if rows >= self._budgets[loop].max_rows:
            return False
        return self._first_pages(tracked) + rows <= self._free_pages[loop]

    def _first_pages(self, tracked: Tracked) -> int:
        return tracked.pages(min(tracked.num_tokens + 1, tracked.ticket.max_tokens))

    def _enter(self, tracked: Tracked) -> None:
        del self._waiting[tracked.ticket.sequence]
        self._running[tracked.ticket.sequence] = tracked
        tracked.num_pages = self._first_pages(tracked)
        self._free_pages[tracked.ticket.loop] -= tracked.num_pages

    def _waits_for_fork(self, tracked: Tracked) -> bool:
        """Whether the sequence it forks is still on its way through the prompt."""
        if tracked.ticket.after is None:
            return False
        parent = self._running.get(tracked.ticket.after) or self._waiting.get(tracked.ticket.after)
        return parent is not None and parent.num_computed < parent.ticket.num_tokens

    def _take(self, tracked: Tracked, num_tokens: int) -> bool:
        """Let a running sequence hold the pages of ``num_tokens`` tokens; False when there are too few."""
        more = tracked.pages(num_tokens) - tracked.num_pages
        if more > self._free_pages[tracked.ticket.loop]:
            return False
        if more > 0:
            tracked.num_pages += more
            self._free_pages[tracked.ticket.loop] -= more
        return True

    def _victim(self, loop: str) -> Tracked:
        """The least important running sequence of a loop."""
        members = [tracked for tracked in self._running.values() if tracked.ticket.loop == loop]
        return max(members, key=self._rank)

    def _lower(self, tracked: Tracked, fresh: set[int]) -> Tracked | None:
        """A running sequence of a lower level to make room for one that waits, the least important first."""
        mine = level(tracked, self._step)
        lower = [
            other
            for id, other in self._running.items()
            if other.ticket.loop == tracked.ticket.loop and id not in fresh and level(other, self._step) < mine
        ]
        if not lower or self._rank(tracked) > min(map(self._rank, lower)):
            return None
        return max(lower, key=self._rank)

    def _preempt(self, tracked: Tracked) -> Preemption:
        """Back to the queue, in its old place; what it had computed is the engine's to keep or not."""
        id = tracked.ticket.sequence
        del self._running[id]
        self._give_back(tracked)
        by_swap = self.costs.swaps
        tracked.num_computed = tracked.num_drafts = 0
        self._waiting[id] = tracked
        return Preemption(id, "swap" if by_swap else "recompute")

    def _give_back(self, tracked: Tracked) -> None:
        self._free_pages[tracked.ticket.loop] += tracked.num_pages
        tracked.num_pages = tracked.draft_pages = 0

    def _return_draft_pages(self, tracked: Tracked) -> None:
        """Pages taken for drafts that were wrong are free again, so that nobody has to leave for want of them."""
        spare = max(0, min(tracked.draft_pages, tracked.num_pages - tracked.pages(tracked.num_tokens)))
        tracked.num_pages -= spare
        self._free_pages[tracked.ticket.loop] += spare
        tracked.draft_pages = 0

    def _ranked(self, sequences: Iterable[Tracked]) -> list[Tracked]:
        return sorted(sequences, key=self._rank)

    def _rank(self, tracked: Ranked) -> tuple[int, ...]:
        return self._policy.rank(tracked, self._step, self._shares.served)

"""The memory of a pipeline's state, claimed from the one budget that all pipelines of the process share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from genai_pipeline.errors import CapacityError
from genai_pipeline.kv.budget import MemoryBudget, machine_memory, parse_memory

KEPT_SHARE = 4  # one part in so many is for cached prefixes and swapped sequences
SMALLEST = 1 << 12

_lock = threading.Lock()
_process: list[MemoryBudget] = []  # the one budget, made when the first pipeline is


@dataclass(frozen=True, slots=True)
class StateMemory:
    """Bytes claimed for the rows of running sequences (``live``) and for pages kept outside them (``kept``).

    ``disk``: bytes of files that such pages may go to.
    """

    budget: MemoryBudget
    live: int
    kept: int
    disk: int = 0

    def release(self) -> None:
        """Give the claim back."""
        self.budget.release(self.live + self.kept)

    def split(self, weights: Sequence[int]) -> list[StateMemory]:
        """Parts in proportion to ``weights``, one per loop; the claim as a whole is released, not they."""
        total = sum(weights)
        return [
            StateMemory(
                self.budget, self.live * weight // total, self.kept * weight // total, self.disk * weight // total
            )
            for weight in weights
        ]


def claim_memory(memory: str | float, useful: int, disk: int = 0) -> StateMemory:
    """Claim what ``memory`` says; "auto" takes no more than ``useful`` bytes and leaves half of what is free.

    Raises OptionError for a wrong value, CapacityError when other pipelines of the process have too much.
    """
    budget = _process_budget()
    total = parse_memory(memory, machine_memory())
    if memory == "auto":
        total = max(SMALLEST, min(total, useful, budget.free))
    if not budget.claim(total):
        raise CapacityError(
            f"{total / 2**20:.0f} MiB of state memory were asked for; this process has {budget.free / 2**20:.0f} MiB "
            f"left of {budget.total / 2**20:.0f} MiB",
            hint="give this pipeline less memory, or close another one",
        )
    kept = total // KEPT_SHARE
    return StateMemory(budget, total - kept, kept, disk)


def _process_budget() -> MemoryBudget:
    with _lock:
        if not _process:
            _process.append(MemoryBudget(machine_memory().total))
        return _process[0]

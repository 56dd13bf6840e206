"""The one thread pool that all graphs of the process share, sized from what the machine really gives us.

Several pools whose threads spin while they wait take each other's cores (measured: three times the run time), so
every session uses ONNX Runtime's global pool. Its size can be chosen once per process.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_pipeline.cgroups import MEMBERSHIP, ROOT, Group, groups
from genai_pipeline.config import MAX_THREADS
from genai_pipeline.errors import OptionError
from genai_pipeline.option_values import integer


@dataclass(frozen=True, slots=True)
class PoolState:
    """Size of the process-wide pool (None: made by other code, size unknown) and what is worth saying about it."""

    threads: int | None
    notes: tuple[str, ...] = ()


class ThreadPool:
    """Creates ONNX Runtime's global pool on first use and refuses to pretend that it can be resized."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: PoolState | None = None

    def ensure(self, runtime: Any, threads: int | None) -> PoolState:
        """The pool, created with ``threads`` (None: as many as the process may use) when there is none yet.

        Raises OptionError when the pool already has another size than the one asked for.
        """
        if threads is not None:
            integer("threads", threads, 1, MAX_THREADS)
        with self._lock:
            if self._state is None:
                self._state = _create(runtime, threads)
            if threads is not None and threads != self._state.threads:
                has = self._state.threads if self._state.threads is not None else "another number of"
                raise OptionError(
                    f"threads={threads} was asked for, but this process already runs its graphs on {has} threads",
                    param="threads",
                    hint="give every load of a process the same threads=, or use one process per setting",
                )
            return self._state


def _create(runtime: Any, threads: int | None) -> PoolState:
    size = threads if threads is not None else usable_cores()
    try:
        runtime.set_global_thread_pool_sizes(size, 1)
    except Exception as error:
        if "already been created" not in str(error):
            raise
        return PoolState(None, ("other code of this process created the thread pool; its size is unknown",))
    return PoolState(size)


POOL = ThreadPool()


def usable_cores() -> int:
    """Physical cores this process may use: by its affinity, and by the processor quota of its control group."""
    cores = physical_cores(_affinity(), Path("/sys/devices/system/cpu"))
    quota = cgroup_quota()
    # A fraction of a core is rounded down: a thread that is throttled in mid-run stalls all the others.
    return cores if quota is None else max(1, min(cores, int(quota)))


def _affinity() -> frozenset[int]:
    if sys.platform == "linux":
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def physical_cores(processors: frozenset[int], folder: Path) -> int:
    """Distinct cores behind a set of logical processors; two threads of one core count once."""
    siblings = set()
    for processor in processors:
        try:
            siblings.add((folder / f"cpu{processor}/topology/thread_siblings_list").read_text().strip())
        except OSError:
            siblings.add(f"cpu{processor}")
    return max(1, len(siblings))


def cgroup_quota(membership: Path = MEMBERSHIP, root: Path = ROOT) -> float | None:
    """Processors the control groups allow (the tightest of the group and its parents), or None without a limit."""
    limits = [_quota(group) for group in groups("cpu", membership, root)]
    return min((limit for limit in limits if limit is not None), default=None)


def _quota(group: Group) -> float | None:
    if group.version == 2:
        quota, period = [*(group.read("cpu.max") or "").split(), "", ""][:2]
    else:
        quota, period = (group.read(f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
    limited = quota.isdecimal() and period.isdecimal() and int(quota) > 0 and int(period) > 0
    return int(quota) / int(period) if limited else None

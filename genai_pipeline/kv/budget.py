"""How much memory all packages of a process may use for state, and who has claimed how much of it."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil

from genai_pipeline.cgroups import MEMBERSHIP, ROOT, Group, groups
from genai_pipeline.errors import OptionError
from genai_pipeline.option_values import as_number
from genai_pipeline.problems import shown

AUTO_SHARE = 0.5  # of what is free: weights and the graphs' own memory need the rest

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", 1)
    for suffix, base in (("iB", 1024), ("B", 1000))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_DIGITS = 18  # of whole numbers that are read exactly; longer ones are beyond any machine
_MOST = 1e30  # bytes; nothing beyond it is the size of anything, and what is computed from it stays a float
_HINT = 'give bytes (2147483648), a size ("2GiB", "500MB"), a fraction of the free memory (0.5), or "auto"'


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Memory this process may have at all, and what of it is free now."""

    total: int
    free: int


class MemoryBudget:
    """Bytes that several owners share; any thread may claim and release."""

    def __init__(self, total: int) -> None:
        assert total > 0
        self.total = total
        self._claimed = 0
        self._lock = threading.Lock()

    @staticmethod
    def of(value: str | float, machine: MachineMemory | None = None) -> MemoryBudget:
        """The budget that an option means on this machine. Raises OptionError."""
        return MemoryBudget(parse_memory(value, machine or machine_memory()))

    @property
    def claimed(self) -> int:
        """Bytes that somebody has."""
        with self._lock:
            return self._claimed

    @property
    def free(self) -> int:
        """Bytes nobody has."""
        return self.total - self.claimed

    def claim(self, nbytes: int) -> bool:
        """Take bytes; False, and nothing taken, when fewer are free."""
        assert nbytes >= 0
        with self._lock:
            if self._claimed + nbytes > self.total:
                return False
            self._claimed += nbytes
            return True

    def release(self, nbytes: int) -> None:
        """Give claimed bytes back."""
        with self._lock:
            assert 0 <= nbytes <= self._claimed
            self._claimed -= nbytes


def parse_memory(value: str | float, machine: MachineMemory) -> int:
    """Bytes meant by "auto", a fraction of the free memory (0 < f < 1), bytes, or a size. Raises OptionError."""
    if value == "auto":
        return max(1, int(AUTO_SHARE * machine.free))
    number, factor = _number(value)
    if factor == 1 and 0 < number < 1:
        return max(1, int(number * machine.free))
    nbytes = number * factor
    if nbytes < 1 or (nbytes != int(nbytes) and factor == 1):
        raise _refused(value)
    if nbytes > machine.total:
        asked, most = (f"{size / 2**20:.0f} MiB" for size in (nbytes, machine.total))
        raise OptionError(
            f"memory {shown(value)} is {asked}, and this process may have {most}",
            param="memory",
            hint='lower it, or leave it "auto"',
        )
    return int(nbytes)


def parse_size(name: str, value: str | int) -> int:
    """Bytes meant by the option ``name``: a number of them or a size such as "10GiB". Raises OptionError."""
    hint = 'give bytes (2147483648) or a size ("10GiB", "500MB")'
    try:
        number, factor = _number(value)
    except OptionError as error:
        raise OptionError(f"{name} cannot be {shown(value)}", param=name, hint=hint) from error
    if number * factor < 1 or (factor == 1 and number != int(number)):
        raise OptionError(f"{name} cannot be {shown(value)}", param=name, hint=hint)
    return int(number * factor)


def machine_memory(membership: Path = MEMBERSHIP, root: Path = ROOT) -> MachineMemory:
    """What the machine has, within what the control groups of this process allow."""
    found = psutil.virtual_memory()
    total, free = int(found.total), int(found.available)
    for group in groups("memory", membership, root):
        limit, used = _group_limit(group), _group_used(group)
        if limit is None:
            continue
        total = min(total, limit)
        free = min(free, limit if used is None else max(0, limit - used))
    return MachineMemory(total, free)


def _number(value: str | float) -> tuple[float, int]:
    """The number and the unit's bytes of an option."""
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip())
        factor = _unit(found[2]) if found else None
        if found is None or factor is None:
            raise _refused(value)
        return _finite(value, float(found[1]) if "." in found[1] or len(found[1]) > _DIGITS else int(found[1])), factor
    number = as_number(value)
    if number is None:
        raise _refused(value)
    return _finite(value, number), 1


def _finite(value: str | float, number: float) -> float:
    if not abs(number) <= _MOST:  # NaN, too
        raise _refused(value)
    return number


def _unit(name: str) -> int | None:
    return {unit.lower(): size for unit, size in _UNITS.items()}.get(name.lower())


def _refused(value: object) -> OptionError:
    return OptionError(f"memory cannot be {shown(value)}", param="memory", hint=_HINT)


def _group_limit(group: Group) -> int | None:
    return _integer(group.read("memory.max" if group.version == 2 else "memory.limit_in_bytes"))


def _group_used(group: Group) -> int | None:
    """Bytes in use that the system cannot take back; files that were read but are not in use are not counted."""
    used = _integer(group.read("memory.current" if group.version == 2 else "memory.usage_in_bytes"))
    if used is None:
        return None
    name = "inactive_file" if group.version == 2 else "total_inactive_file"
    for line in (group.read("memory.stat") or "").splitlines():
        key, _, number = line.partition(" ")
        if key == name:
            return max(0, used - (_integer(number) or 0))
    return used


def _integer(text: str | None) -> int | None:
    """An integer that a control group gives; None for "max" and for what is no number."""
    return int(text) if text is not None and text.isdecimal() else None

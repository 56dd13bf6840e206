"""What a memory option means on a machine and in its control groups, and that claims are exact."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.kv.budget import MachineMemory, MemoryBudget, machine_memory, parse_memory

GIB = 2**30
MACHINE = MachineMemory(total=8 * GIB, free=4 * GIB)


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        ("auto", 2 * GIB),
        (0.25, GIB),
        ("0.25", GIB),
        (1, 1),
        (GIB, GIB),
        ("1073741824", GIB),
        (1e9, 10**9),
        ("4GiB", 4 * GIB),
        ("4 gib", 4 * GIB),
        (" 1.5GiB ", 3 * GIB // 2),
        ("500MB", 500 * 10**6),
        ("12B", 12),
        ("0.5 KiB", 512),
        ("0.007TiB", int(0.007 * 2**40)),
        (8 * GIB, 8 * GIB),
    ],
)
def test_what_is_meant(value: str | float, nbytes: int) -> None:
    assert parse_memory(value, MACHINE) == nbytes
    assert MemoryBudget.of(value, MACHINE).total == nbytes


@pytest.mark.parametrize(
    "value",
    [
        *(0, 0.0, -1, -0.5, 1.5, "1.5", True, float("nan"), float("inf"), None, [4]),
        *("", "lots", "4 GiB of it", "GiB", "4XiB", "1e9", "50%", "-4GiB", "0GiB", "0.0001KiB"),
        *(8 * GIB + 1, "9GiB", "1TB"),
    ],
)
def test_what_is_refused(value: object) -> None:
    with pytest.raises(OptionError) as caught:
        parse_memory(value, MACHINE)  # type: ignore[arg-type]
    assert caught.value.param == "memory"
    assert caught.value.hint
    assert "memory" in caught.value.message


def test_more_than_there_is_is_refused_with_numbers() -> None:
    with pytest.raises(OptionError, match=r"'9GiB' is 9216 MiB, and this process may have 8192 MiB"):
        parse_memory("9GiB", MACHINE)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    found = machine_memory(tmp_path / "absent", tmp_path)
    assert found.total == psutil.virtual_memory().total
    assert 0 < found.free <= found.total
    assert 0 < machine_memory().free <= machine_memory().total


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pod/memory.max": "max"}, None),
        ({"pod/memory.max": "20000000", "pod/memory.current": "5000000"}, (20_000_000, 15_000_000)),
        ({"memory.max": "20000000", "memory.current": "5000000"}, (20_000_000, 15_000_000)),
        ({"pod/memory.max": "20000000"}, (20_000_000, 20_000_000)),
        ({"pod/memory.max": "20000000", "pod/memory.current": "30000000"}, (20_000_000, 0)),
        (
            {
                "pod/memory.max": "20000000",
                "pod/memory.current": "15000000",
                "pod/memory.stat": "anon 1\ninactive_file 4000000\nactive_file 9",
            },
            (20_000_000, 9_000_000),
        ),
        (
            {
                "memory.max": "9000000",
                "memory.current": "1000000",
                "pod/memory.max": "20000000",
                "pod/memory.current": "0",
            },
            (9_000_000, 8_000_000),
        ),
    ],
)
def test_unified_control_groups(tmp_path: Path, files: dict[str, str], expected: tuple[int, int] | None) -> None:
    write(tmp_path / "membership", "0::/pod")
    for name, text in files.items():
        write(tmp_path / "root" / name, text)
    found = machine_memory(tmp_path / "membership", tmp_path / "root")
    if expected is None:
        assert found.total == psutil.virtual_memory().total
    else:
        assert (found.total, found.free) == expected


def test_older_control_groups(tmp_path: Path) -> None:
    write(tmp_path / "membership", "4:cpu,cpuacct:/\n9:memory:/box")
    folder = tmp_path / "root" / "memory" / "box"
    write(folder / "memory.limit_in_bytes", "20000000")
    write(folder / "memory.usage_in_bytes", "5000000")
    write(folder / "memory.stat", "inactive_file 7\ntotal_inactive_file 1000000")
    write(tmp_path / "root" / "memory" / "memory.limit_in_bytes", str(2**63 - 4096))  # its way to say: no limit
    write(tmp_path / "root" / "memory" / "memory.usage_in_bytes", "6000000")
    assert machine_memory(tmp_path / "membership", tmp_path / "root") == MachineMemory(20_000_000, 16_000_000)


def test_claims_add_up_to_the_last_byte() -> None:
    budget = MemoryBudget(100)
    assert budget.claim(60)
    assert not budget.claim(41)
    assert budget.claim(40)
    assert (budget.claimed, budget.free) == (100, 0)
    assert budget.claim(0)
    budget.release(60)
    assert budget.free == 60


def test_claims_from_many_threads_never_exceed_the_budget() -> None:
    budget = MemoryBudget(1000)
    got = [0] * 8

    def work(index: int) -> None:
        for size in range(1, 60):
            if budget.claim(size):
                got[index] += size
                if size % 3 == 0:
                    budget.release(size)
                    got[index] -= size

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(got) == budget.claimed <= 1000

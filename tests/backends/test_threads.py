"""The thread pool: sized from what the process may really use, once per process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from genai_pipeline.backends.threads import ThreadPool, cgroup_quota, physical_cores, usable_cores
from genai_pipeline.errors import OptionError


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_threads_of_one_core_count_once(tmp_path: Path) -> None:
    for cpu, siblings in enumerate(["0,4", "1,5", "2,6", "3,7"] * 2):
        write(tmp_path / f"cpu{cpu}/topology/thread_siblings_list", siblings + "\n")
    assert physical_cores(frozenset(range(8)), tmp_path) == 4
    assert physical_cores(frozenset({1, 5}), tmp_path) == 1
    assert physical_cores(frozenset({0, 1, 9}), tmp_path) == 3  # 9 has no topology: a core of its own


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "250000 100000"}, 2.5),
        ({"pod/cpu.max": "150000 100000", "cpu.max": "max 100000"}, 1.5),
        ({"pod/cpu.max": "max 100000", "cpu.max": "300000 100000"}, 3.0),  # a parent's limit holds too
        ({}, None),
        ({"cpu.max": "nonsense"}, None),
    ],
)
def test_quota_of_unified_control_groups(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    write(tmp_path / "membership", "0::/pod\n")
    for name, text in files.items():
        write(tmp_path / "root" / name, text)
    assert cgroup_quota(tmp_path / "membership", tmp_path / "root") == quota


@pytest.mark.parametrize(("us", "quota"), [("-1", None), ("50000", 0.5)])
def test_quota_of_older_control_groups(tmp_path: Path, us: str, quota: float | None) -> None:
    write(tmp_path / "membership", "5:memory:/x\n4:cpu,cpuacct:/box\n")
    write(tmp_path / "root/cpu,cpuacct/box/cpu.cfs_quota_us", us)
    write(tmp_path / "root/cpu,cpuacct/box/cpu.cfs_period_us", "100000")
    assert cgroup_quota(tmp_path / "membership", tmp_path / "root") == quota


def test_no_control_groups_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path / "absent", tmp_path) is None
    assert usable_cores() >= 1


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_numbers_out_of_range_are_refused(threads: int) -> None:
    with pytest.raises(OptionError, match="threads must be between 1 and 1024"):
        ThreadPool().ensure(None, threads)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


PREAMBLE = """
import os
import onnxruntime
from genai_pipeline.backends.threads import POOL
from genai_pipeline.errors import OptionError
def native_threads(): return len(os.listdir("/proc/self/task"))
"""


def test_another_size_in_the_same_process_is_an_error_that_names_both() -> None:
    out = run(
        PREAMBLE
        + """
before = native_threads()
assert POOL.ensure(onnxruntime, 3).threads == 3
if os.path.exists("/proc/self/task"):
    assert native_threads() == before + 2, native_threads()  # the caller is the third
assert POOL.ensure(onnxruntime, 3).threads == POOL.ensure(onnxruntime, None).threads == 3
try:
    POOL.ensure(onnxruntime, 4)
except OptionError as error:
    print(error.message, "|", error.param)
"""
    )
    assert out == "threads=4 was asked for, but this process already runs its graphs on 3 threads | threads\n"


def test_a_pool_that_other_code_made_is_used_and_said_to_be_of_unknown_size() -> None:
    out = run(
        PREAMBLE
        + """
onnxruntime.set_global_thread_pool_sizes(2, 1)
state = POOL.ensure(onnxruntime, None)
print(state.threads, len(state.notes))
try:
    POOL.ensure(onnxruntime, 2)
except OptionError as error:
    print(error.message)
"""
    )
    assert out.splitlines() == [
        "None 1",
        "threads=2 was asked for, but this process already runs its graphs on another number of threads",
    ]

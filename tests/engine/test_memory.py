"""The claim on the memory of the process: one per pipeline, split over its loops, and given back in every case."""

from __future__ import annotations

from pathlib import Path

import pytest

import genai_pipeline as gp
from genai_pipeline.engine.memory import StateMemory, _process_budget
from genai_pipeline.errors import CapacityError, OptionError
from genai_pipeline.kv.budget import MemoryBudget
from genai_pipeline.testing import write_package


def test_a_load_that_fails_claims_nothing(tmp_path: Path) -> None:
    package = write_package(tmp_path / "package", "kv")
    before = _process_budget().claimed
    with pytest.raises(CapacityError):
        gp.load(package.path, memory=64)
    with pytest.raises(OptionError):
        gp.load(package.path, memory="1MiB", profile=tmp_path / "no folder" / "trace")
    assert _process_budget().claimed == before
    with gp.load(package.path, memory="1MiB"):
        assert _process_budget().claimed == before + (1 << 20)
    assert _process_budget().claimed == before


def test_loops_share_one_claim_by_what_their_sequences_take() -> None:
    memory = StateMemory(MemoryBudget(10_000), 6000, 2000)
    assert [(part.live, part.kept) for part in memory.split([1, 3])] == [(1500, 500), (4500, 1500)]
    (whole,) = memory.split([7])
    assert whole == memory

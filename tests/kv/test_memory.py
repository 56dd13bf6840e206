"""Memory of the arenas: what tokens in use take, what ended rows keep, and that no byte moves or stays by mistake."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import CapacityError
from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv import memory, pool
from genai_pipeline.kv.arena import ArenaStorage
from genai_pipeline.kv.memory import Region
from genai_pipeline.kv.pool import KvPool

PAGE = mmap.PAGESIZE


def states(layers: int = 30, heads: int = 3, dim: int = 64, update: Any = "in_place") -> list[StatePlan]:
    """State of a small language model: 45 KiB of float32 per token of 30 layers."""
    tensors = (
        StateTensor(layer, part, f"p{layer}{part}", f"n{layer}{part}", "float32", ("batch", heads, "length", dim))
        for layer in range(layers)
        for part in ("key", "value")
    )
    return [StatePlan(update, tuple(tensors))]


def fill(kv: KvPool, row: int, start: int, stop: int, value: float = 1.0) -> None:
    """Write tokens as a run would."""
    assert kv.reserve(row, stop)
    block = [np.full((stop - start, 3, 64), value, np.float32)] * 60
    kv.load(row, start, stop, {"decoder": [block]})


@pytest.mark.parametrize("tokens", [16, 500, 4096])
def test_resident_bytes_are_those_of_the_tokens_in_use(tokens: int) -> None:
    kv = KvPool({"decoder": states()}, max_rows=4, capacity=4096)
    row = kv.open()
    assert row == 0
    fill(kv, row, 0, tokens)
    used = tokens * 60 * 3 * 64 * 4
    resident = kv.usage().resident_bytes
    assert resident is not None
    assert used <= resident <= 1.15 * used
    kv.close()


def test_a_graph_touches_only_the_tokens_in_use(decoder: Callable[..., Any]) -> None:
    model = decoder("in_place", heads=3, head_dim=64, layers=2, max_rows=8, capacity=4096)
    rows = [model.open(), model.open()]
    last = {rows[0]: model.prefill(rows[0], [7, 8, 9] * 200, 128), rows[1]: model.prefill(rows[1], [9] * 100)}
    model.generate(rows, last, 12)
    used = sum(len(tokens) for tokens in model.rows.values()) * 2 * 2 * 3 * 64 * 4
    resident = model.pool.usage().resident_bytes
    assert used <= resident <= 1.15 * used


def test_ended_rows_stay_warm_up_to_a_bound_and_trim_gives_all_back() -> None:
    kv = KvPool({"decoder": states(layers=2)}, max_rows=2, capacity=4096)
    row = kv.open()
    assert row is not None
    block = [np.ones((2048, 3, 64), np.float32)] * 4
    assert kv.reserve(row, 2048)
    kv.load(row, 0, 2048, {"decoder": [block]})
    full = kv.usage().resident_bytes
    kv.release(row)
    assert full == 2048 * 4 * 3 * 64 * 4
    assert kv.usage().resident_bytes == 512 * 4 * 3 * 64 * 4
    kv.trim()
    assert kv.usage().resident_bytes == 0


def test_a_scatter_row_starts_from_zeros_even_after_nan() -> None:
    storage = ArenaStorage(states(layers=1, update="scatter")[0], max_rows=1, capacity=64, warm_tokens=0)
    storage.open(0)
    storage.load(0, 0, 20, [np.full((20, 3, 64), np.nan, np.float32)] * 2)
    storage.release(0)
    storage.open(0)
    assert storage.resident_bytes() == 0
    storage.load(0, 0, 1, [np.zeros((1, 3, 64), np.float32)] * 2)
    assert storage.resident_bytes() == 2 * 3 * PAGE


def test_capacity_is_rounded_so_that_stripes_are_whole_pages() -> None:
    kv = KvPool({"decoder": states(layers=1, dim=24)}, max_rows=3, capacity=100)
    a, b = kv.open(), kv.open()
    assert (a, b) == (0, 1)
    for row, value in ((0, 1.0), (1, 2.0)):
        assert kv.reserve(row, 100)
        kv.load(row, 0, 100, {"decoder": [[np.full((100, 3, 24), value, np.float32)] * 2]})
    kv.release(0)
    kv.move(1, 0)
    assert all((tensor == 2.0).all() for tensor in kv.save(0, 0, 100)["decoder"][0])


def test_a_move_takes_pages_along_and_leaves_zeros() -> None:
    region = Region(8 * PAGE)
    region.bytes[2 * PAGE : 4 * PAGE] = 7
    assert region.remap(2 * PAGE, 6 * PAGE, 2 * PAGE)
    assert (region.bytes[6 * PAGE :] == 7).all()
    assert not region.bytes[: 6 * PAGE].any()
    assert memory.resident_bytes([region]) is not None


def test_regions_next_to_each_other_are_counted_apart_from_other_memory() -> None:
    regions = [Region(16 * PAGE) for _ in range(8)]
    for region in regions:
        region.bytes[: 3 * PAGE] = 1
    assert memory.resident_bytes(regions) == 8 * 3 * PAGE
    regions[0].discard(0, 2 * PAGE)
    assert memory.resident_bytes(regions) == 22 * PAGE


def test_without_overcommit_rows_are_as_many_as_the_budget_pays_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "overcommits", lambda: False)
    monkeypatch.setattr(pool, "overcommits", lambda: False)
    row_bytes = 256 * 4 * 3 * 64 * 4
    kv = KvPool({"decoder": states(layers=2)}, max_rows=16, capacity=256, budget_bytes=3 * row_bytes + 1)
    assert kv.max_rows == 3
    assert kv.num_pages == 48


def test_a_budget_below_two_pages_is_refused_with_numbers() -> None:
    page = KvPool({"decoder": states()}, max_rows=1, capacity=32).page_bytes
    with pytest.raises(CapacityError, match=rf"{2 * page - 1} bytes .* 32 tokens takes {2 * page}") as caught:
        KvPool({"decoder": states()}, max_rows=16, capacity=4096, budget_bytes=2 * page - 1)
    assert caught.value.hint


def test_more_address_space_than_there_is_is_refused() -> None:
    with pytest.raises(CapacityError, match="address space"):
        Region(2**60)

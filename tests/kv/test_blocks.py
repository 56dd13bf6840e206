"""Rows come together in one block, and no more rows are copied than have to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.kv.blocks import NOBODY, SPARE, Block, Blocks


class Counted(Block):
    """A block of one text per slot that counts what is copied into any of them."""

    copies = 0

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def resize(self, slots: int) -> None:
        assert all(row == NOBODY for row in self.rows[slots:]), "a row is cut off"
        kept, more = min(slots, len(self.rows)), max(0, slots - len(self.rows))
        self.rows[kept:], self.texts[kept:] = [NOBODY] * more, ["?"] * more

    def clear(self, slot: int) -> None:
        assert self.rows[slot] == NOBODY
        self.texts[slot] = ""

    def take(self, slot: int, source: Self, source_slot: int) -> None:
        assert self.rows[slot] == NOBODY, "a row is written over"
        Counted.copies += 1
        self.texts[slot] = source.texts[source_slot]

    @property
    def nbytes(self) -> int:
        return len(self.texts)


class Model:
    """Blocks whose rows are extended by one letter whenever they run."""

    def __init__(self, rows: int) -> None:
        self.blocks: Blocks[Counted] = Blocks(lambda _: self.blocks.spare.pop() if self.blocks.spare else Counted())
        self.texts: dict[int, str] = {}
        for row in range(rows):
            self.open(row)

    def open(self, row: int) -> None:
        self.blocks.open(row)
        self.texts[row] = ""

    def move(self, source: int, target: int) -> None:
        self.blocks.move(source, target)
        self.texts[target] = self.texts.pop(source)

    def release(self, row: int) -> None:
        self.blocks.release(row)
        del self.texts[row]

    def run(self, rows: Sequence[int]) -> int:
        """Bring rows together and extend them; how many copies that took."""
        before = Counted.copies
        block = self.blocks.together(rows)
        if block is None:
            block = self.blocks.claim(rows)
            self.blocks.fill(block, rows)
        assert block.rows == list(rows)
        assert block.texts == [self.texts[row] for row in rows]
        for slot, row in enumerate(rows):
            block.texts[slot] += chr(97 + len(self.texts))
            self.texts[row] = block.texts[slot]
        return Counted.copies - before


def test_only_rows_that_join_or_leave_are_copied() -> None:
    model = Model(6)
    assert model.run([0, 1, 2, 3, 4]) == 0  # empty rows
    assert model.run([0, 1, 2, 3, 4]) == 0
    assert model.run([5]) == 0
    assert model.run([0, 1, 2, 3, 4, 5]) == 1
    model.release(1)
    model.move(5, 1)
    assert model.run([0, 1, 2, 3, 4]) == 1
    model.release(4)
    assert model.run([0, 1, 2, 3]) == 0
    model.release(1)
    assert model.run([0, 2, 3]) == 2  # those behind the gap
    model.open(1)
    assert model.run([0, 1, 2, 3]) == 2
    assert model.run([1, 0, 2, 3]) == 3  # two that change places need a third


def test_a_row_that_runs_alone_leaves_the_others_where_they_are() -> None:
    model = Model(4)
    model.run([0, 1, 2, 3])
    assert model.run([1]) == 1
    assert model.run([0, 1, 2, 3]) == 1
    assert model.run([0, 1, 2]) == 1  # the fourth goes, the three stay


def test_memory_of_blocks_without_rows_is_kept_up_to_a_bound() -> None:
    model = Model(5)
    for row in range(5):
        model.run([row])
    model.run([0, 1, 2, 3, 4])
    assert len(model.blocks.spare) == SPARE
    for row in range(5):
        model.release(row)
    assert len(model.blocks.spare) == SPARE
    model.open(0)
    model.run([0])
    assert len(model.blocks.spare) == SPARE - 1


ROWS = st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True)


@given(st.lists(st.tuples(st.sampled_from(["run", "run", "run", "again", "move"]), ROWS), max_size=25))
def test_any_company_in_any_order(steps: list[tuple[str, list[int]]]) -> None:
    model = Model(6)
    for kind, rows in steps:
        live = [row for row in rows if row in model.texts]
        if kind == "run" and live:
            assert model.run(live) <= 2 * len(live) + 6
            assert model.run(live) == 0
        elif kind == "again":
            for row in rows:
                if row in model.texts:
                    model.release(row)
                else:
                    model.open(row)
        elif kind == "move" and live and len(model.texts) < 6:
            model.move(live[0], next(row for row in range(6) if row not in model.texts))


def test_a_row_has_one_place() -> None:
    model = Model(2)
    with pytest.raises(AssertionError, match="taken"):
        model.blocks.open(0)
    with pytest.raises(AssertionError, match="taken"):
        model.blocks.move(0, 1)

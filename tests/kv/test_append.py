"""Batches padded on the left: what padding holds, how much of it there is, and when it goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv.append import PADDING, AppendStorage
from genai_pipeline.kv.geometry import PAGE_TOKENS


class Appending:
    """A binding whose run does what such graphs do: present = past + new, the new tokens being ``fill``."""

    fill = 1.0

    def __init__(self) -> None:
        self.past: NDArray[Any] = np.empty(0)
        self.present: NDArray[Any] = np.empty(0)

    def bind_input(self, port: str, buffer: Buffer) -> None:
        self.past = view(buffer)

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        assert buffer is not None
        self.present = view(buffer)

    def run(self) -> None:
        width = self.past.shape[2]
        self.present[:, :, :width] = self.past
        self.present[:, :, width:] = self.fill

    def output(self, port: str) -> NDArray[Any]:
        raise AssertionError("state goes into buffers of its own")


def view(buffer: Buffer) -> NDArray[Any]:
    owner: Any = buffer.owner
    return owner[: int(np.prod(buffer.shape))].reshape(buffer.shape)


class Rows:
    """A storage of one tensor with rows of given lengths, row i filled with i + 1."""

    def __init__(self, *lengths: int) -> None:
        tensor = StateTensor(0, "key", "past", "present", "float32", ("batch", 2, "length", 3))
        self.storage = AppendStorage(StatePlan("append", (tensor,)), capacity=1000)
        self.binding: Any = Appending()
        self.lengths: dict[int, int] = {}
        for row, length in enumerate(lengths):
            self.storage.open(row)
            self.storage.load(row, 0, length, [np.full((length, 2, 3), row + 1, np.float32)])
            self.lengths[row] = length

    def step(self, *rows: int, new: int = 1) -> int:
        """One run that is committed; the width its past was padded to."""
        width = self.storage.bind(self.binding, rows, [self.lengths[row] for row in rows], [new] * len(rows))
        self.binding.run()
        for row in rows:
            self.lengths[row] += new
        self.storage.commit(rows, [self.lengths[row] for row in rows])
        return width


def test_padding_is_zeros_whatever_was_there_before() -> None:
    rows = Rows(20, 5, 3)
    rows.storage.load(0, 0, 20, [np.full((20, 2, 3), np.nan, np.float32)])
    rows.step(0, 1)
    rows.storage.release(0)
    rows.storage.move(1, 0)
    rows.lengths[0] = rows.lengths.pop(1)
    rows.step(0, 2)  # both are copied into slots that held the nans
    past = rows.binding.past
    assert past.shape == (2, 2, 21, 3)
    for slot, length in enumerate((6, 3)):
        assert (past[slot, :, :-length] == 0).all()
        assert (past[slot, :, -length:] != 0).all()


def test_a_row_alone_has_no_padding() -> None:
    rows = Rows(50, 5)
    assert rows.step(0, 1) == 50
    assert rows.step(1) == 6
    assert rows.step(0, 1) == 51
    rows.storage.release(0)
    assert rows.step(1) == 8
    rows.storage.truncate(1, 4)
    rows.lengths[1] = 4
    assert rows.step(1) == 4


@pytest.mark.parametrize("longest", [40, 400])
def test_padding_of_all_rows_is_bounded(longest: int) -> None:
    rows = Rows(longest, longest, longest)
    rows.step(0, 1, 2)
    spare = max(PAGE_TOKENS, longest // PADDING)
    for taken in range(2, spare + 20):
        for row in range(3):
            rows.storage.truncate(row, longest - taken)
            rows.lengths[row] = longest - taken
        width = rows.step(0, 1, 2)
        held = longest - taken
        assert held <= width <= held + max(PAGE_TOKENS, held // PADDING)
        assert rows.storage.save(1, 0, held)[0].tolist() == np.full((held, 2, 3), 2).tolist()


def test_buffers_take_turns_while_the_company_stays() -> None:
    rows = Rows(30, 20, 10)
    rows.step(0, 1, 2)
    rows.step(0, 1, 2)
    addresses = set()
    for _ in range(8):
        rows.step(0, 1, 2)
        addresses.add(rows.binding.past.__array_interface__["data"][0])
    assert len(addresses) == 2


def test_memory_goes_back_when_asked() -> None:
    rows = Rows(30, 20)
    rows.step(0, 1)
    for row in (0, 1):
        rows.storage.release(row)
    assert rows.storage.resident_bytes()
    rows.storage.trim()
    assert rows.storage.resident_bytes() == 0

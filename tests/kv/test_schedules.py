"""Any schedule of runs, moves, swaps, forks and rewinds gives each row the tokens of its own history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

ROWS, CAPACITY, MOST = 4, 48, 3
SOURCES = ((7, 12, 9), (30, 31, 8), (5, 6))


class Schedules(RuleBasedStateMachine):
    """Rows of one decoder; every run is compared with the arithmetic of each row's own tokens."""

    model: ClassVar[Any]

    @initialize()
    def begin(self) -> None:
        self.model.restart()

    def row(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.model.rows)), "row")

    def free(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from([row for row in range(ROWS) if row not in self.model.rows]), "free row")

    def boundary(self, data: st.DataObject, row: int) -> int:
        """A length that the row can go back to."""
        found = self.model.pool.boundaries(row)
        places = range(len(self.model.rows[row]) + 1) if found is None else sorted(found)
        return data.draw(st.sampled_from(places), "boundary")

    def batch(self, data: st.DataObject) -> dict[int, list[int]]:
        """Rows that may run together, in any order where the kind allows, and new tokens for each."""
        pool, held = self.model.pool, self.model.rows
        first = self.row(data)
        key, width = pool.batch_key(first), len(self.model.sources[first])
        others = [row for row in held if row != first and pool.batch_key(row) == key]
        if self.model.update == "fixed":
            others = [row for row in others if len(self.model.sources[row]) == width]
        rows = [first, *data.draw(st.lists(st.sampled_from(others), unique=True) if others else st.just([]), "with")]
        if self.model.kind in ("in_place", "scatter"):
            rows = [row for row in sorted(rows) if all(between in rows for between in range(min(rows), row))]
        pasts = [len(held[row]) for row in rows]
        counts = self.counts(data, pasts)
        counts = [min(count, CAPACITY - max(pasts)) for count in counts]
        tokens = st.integers(6, 60)
        return {row: data.draw(st.lists(tokens, min_size=n, max_size=n)) for row, n in zip(rows, counts, strict=True)}

    def counts(self, data: st.DataObject, pasts: list[int]) -> list[int]:
        """How many new tokens: what the graph of the kind can take at once."""
        number = st.integers(1, MOST)
        if len(pasts) > 1 and self.model.kind == "in_place" and any(pasts):
            return [1] * len(pasts)
        if not self.model.pool.uneven or (self.model.kind == "scatter" and any(pasts)):
            return [data.draw(number, "new")] * len(pasts)
        return [data.draw(number, "new") for _ in pasts]

    def possible(self, batch: dict[int, list[int]]) -> bool:
        pasts = [len(self.model.rows[row]) for row in batch]
        return min(len(new) for new in batch.values()) > 0 and (
            self.model.kind != "in_place" or all(pasts) or not any(pasts)
        )

    @precondition(lambda self: len(self.model.rows) < ROWS)
    @rule(source=st.sampled_from(SOURCES))
    def open(self, source: tuple[int, ...]) -> None:
        self.model.open(source)

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def run(self, data: st.DataObject) -> None:
        batch = self.batch(data)
        if not self.possible(batch):
            return
        keep = None
        if self.model.update != "replace" and data.draw(st.booleans(), "drop some"):
            keep = {row: data.draw(st.integers(0, len(new)), "keep") for row, new in batch.items()}
        pasts = {row: list(self.model.rows[row]) for row in batch}
        logits = self.model.run(batch, keep)
        for i, (row, new) in enumerate(batch.items()):
            expected = self.model.alone([*pasts[row], *new], 1, self.model.sources[row])
            assert [self.model.choose(logits, i, len(new))] == expected

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """A run that was bound and never committed."""
        batch = self.batch(data)
        if self.possible(batch):
            lengths = [len(self.model.rows[row]) for row in batch]
            counts = [len(new) for new in batch.values()]
            self.model.pool.bind("decoder", self.model.binding, list(batch), lengths, counts)

    @precondition(lambda self: 0 < len(self.model.rows) < ROWS)
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        self.model.move(self.row(data), self.free(data))

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        """Out of its row and into the lowest free one."""
        row = self.row(data)
        tokens, source = self.model.rows[row], self.model.sources[row]
        saved = self.model.pool.save(row, 0, len(tokens))
        self.model.release(row)
        self.enter(self.model.open(source), tokens, saved)

    @precondition(lambda self: 0 < len(self.model.rows) < ROWS)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        row = self.row(data)
        length = self.boundary(data, row)
        saved = self.model.pool.save(row, 0, length)
        self.enter(self.model.open(self.model.sources[row]), self.model.rows[row][:length], saved)

    def enter(self, row: int, tokens: list[int], saved: Any) -> None:
        assert self.model.pool.reserve(row, len(tokens))
        self.model.pool.load(row, 0, len(tokens), saved)
        self.model.rows[row] = list(tokens)

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        row = self.row(data)
        self.model.truncate(row, self.boundary(data, row))

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def snapshot(self, data: st.DataObject) -> None:
        self.model.pool.snapshot(self.row(data))

    @precondition(lambda self: self.model.rows)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.model.release(self.row(data))

    @rule()
    def trim(self) -> None:
        self.model.pool.trim()

    def teardown(self) -> None:
        for row in list(self.model.rows):
            self.model.release(row)
        self.model.pool.trim()
        usage = self.model.pool.usage()
        assert (usage.rows, usage.pages) == (0, 0)
        if self.model.kind not in ("in_place", "scatter"):
            assert usage.resident_bytes == 0


@pytest.mark.parametrize(
    ("update", "options"),
    [
        ("in_place", {}),
        ("append", {}),
        ("append", {"dtype": "float16", "positions": "mask"}),
        ("scatter", {}),
        ("gathered in_place", {}),
        ("gathered scatter", {}),
        ("device in_place", {}),
        ("device scatter", {}),
        ("replace", {}),
        ("fixed", {"own": "append"}),
        ("fixed", {"own": "in_place"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()),
)
def test_any_schedule(decoder: Callable[..., Any], update: str, options: dict[str, Any]) -> None:
    model = decoder(update, max_rows=ROWS, capacity=CAPACITY, **options)
    machine = type("Machine", (Schedules,), {"model": model})
    quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=quiet),
    )

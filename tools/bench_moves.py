"""What moving a row of an arena costs for few and for many tokens: it should be the same, as pages are remapped.

    python tools/bench_moves.py [--rounds 15]

Geometry of SmolLM2-135M in float32: 30 layers, keys and values, 3 heads of 64. Prints medians and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv.pool import KvPool

LENGTHS = (100, 4000)


def state() -> StatePlan:
    """The state of the decoder."""
    tensors = tuple(
        StateTensor(
            layer, part, f"past.{layer}.{part}", f"present.{layer}.{part}", "float32", ("batch", 3, "length", 64)
        )
        for layer in range(30)
        for part in ("key", "value")
    )
    return StatePlan("in_place", tensors)


def filled(pool: KvPool, length: int) -> int:
    """A row whose memory holds ``length`` tokens."""
    row = pool.open()
    assert row is not None
    assert pool.reserve(row, length)
    pool.load(row, 0, length, {"decoder": [[np.zeros((length, 3, 64), np.float32) for _ in range(60)]]})
    return row


def main() -> None:
    """Move rows to and fro in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    pool = KvPool({"decoder": [state()]}, max_rows=4, capacity=8192)
    rows = {length: filled(pool, length) for length in LENGTHS}
    free = next(row for row in range(4) if row not in rows.values())
    times: dict[int, list[float]] = {length: [] for length in LENGTHS}
    for _ in range(rounds):
        for length in LENGTHS:
            start = time.perf_counter()
            pool.move(rows[length], free)
            times[length].append(time.perf_counter() - start)
            rows[length], free = free, rows[length]
    medians = {length: 1000 * statistics.median(values) for length, values in times.items()}
    for length, median in medians.items():
        print(f"moving a row of {length:4d} tokens: {median:6.2f} ms (median of {rounds})")
    print(f"ratio: {max(medians.values()) / min(medians.values()):.2f}, wanted at most 2")
    pool.close()


if __name__ == "__main__":
    main()

"""Counter-based random numbers: a number depends on (seed, choice, index, lane) and on nothing else."""

from __future__ import annotations

import secrets

import numpy as np

SEED_BITS = 63
TOKEN_LANE = 0  # the draw of a token
XTC_LANE = 1  # whether XTC applies to a token


def fresh_seed() -> int:
    """A seed for a request that names none."""
    return secrets.randbits(SEED_BITS)


def uniform(seed: int, choice: int, index: int, lane: int = TOKEN_LANE) -> float:
    """The number in [0, 1) for the token at ``index`` of ``choice``, the same in any batch and after any preemption.

    Philox4x64 keyed by (seed, choice) with index and lane as counter, so no state has to be kept or rewound; numbers
    of different lanes are independent.
    """
    counter = np.array([0, index, lane, 0], np.uint64)
    generator = np.random.Philox(key=np.array([seed, choice], np.uint64), counter=counter)
    return float(np.random.Generator(generator).random())

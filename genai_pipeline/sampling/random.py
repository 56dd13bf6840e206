"""Counter-based random numbers: the draw for a token depends on (seed, choice, index) and on nothing else."""

from __future__ import annotations

import secrets

import numpy as np

SEED_BITS = 63


def fresh_seed() -> int:
    """A seed for a request that names none."""
    return secrets.randbits(SEED_BITS)


def uniform(seed: int, choice: int, index: int) -> float:
    """The number in [0, 1) for the token at ``index`` of ``choice``, the same in any batch and after any preemption.

    Philox4x64 keyed by (seed, choice) with the index as counter, so no state has to be kept or rewound.
    """
    generator = np.random.Philox(key=np.array([seed, choice], np.uint64), counter=np.array([0, index, 0, 0], np.uint64))
    return float(np.random.Generator(generator).random())

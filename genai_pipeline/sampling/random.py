"""Counter-based random numbers: a number depends on (seed, choice, index, lane) and on nothing else."""

from __future__ import annotations

import secrets
import threading

import numpy as np

SEED_BITS = 63
TOKEN_LANE = 0  # the draw of a token
XTC_LANE = 1  # whether XTC applies to a token

_LOCK = threading.Lock()
_PHILOX = np.random.Philox(0)  # made once, set for each number: making one takes four times as long
_NUMBERS = np.random.Generator(_PHILOX)
_NOTHING_DRAWN = np.zeros(4, np.uint64)


def fresh_seed() -> int:
    """A seed for a request that names none."""
    return secrets.randbits(SEED_BITS)


def uniform(seed: int, choice: int, index: int, lane: int = TOKEN_LANE) -> float:
    """The number in [0, 1) for the token at ``index`` of ``choice``, the same in any batch and after any preemption.

    The first one of Philox4x64 keyed by (seed, choice) with index and lane as counter, so no state has to be kept or
    rewound; numbers of different lanes are independent.
    """
    counter, key = np.array([0, index, lane, 0], np.uint64), np.array([seed, choice], np.uint64)
    with _LOCK:
        _PHILOX.state = {
            "bit_generator": "Philox",
            "state": {"counter": counter, "key": key},
            "buffer": _NOTHING_DRAWN,
            "buffer_pos": len(_NOTHING_DRAWN),
            "has_uint32": 0,
            "uinteger": 0,
        }
        return _NUMBERS.random()

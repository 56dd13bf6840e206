"""Results of components on media, kept under a digest of their exact inputs: the same picture is encoded once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

Values = Mapping[str, Any]


class ResultCache:
    """Up to ``max_bytes`` of results, the least recently used leave first. Any thread may use it."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_hits = 0
        self.num_misses = 0
        self._kept: OrderedDict[bytes, tuple[Values, int]] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept."""
        return self._nbytes

    def get(self, digest: bytes) -> Values | None:
        """What was kept for a digest; to be read only."""
        with self._lock:
            found = self._kept.get(digest)
            if found is None:
                self.num_misses += 1
                return None
            self._kept.move_to_end(digest)
            self.num_hits += 1
            return found[0]

    def put(self, digest: bytes, outputs: Values) -> None:
        """Keep a result, unless it is larger than the whole cache."""
        nbytes = sum(int(np.asarray(value).nbytes) for value in _arrays(outputs))
        if nbytes > self.max_bytes:
            return
        outputs = {key: _own(value) for key, value in outputs.items()}
        with self._lock:
            if digest in self._kept:
                return
            self._kept[digest] = (outputs, nbytes)
            self._nbytes += nbytes
            while self._nbytes > self.max_bytes:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._nbytes -= dropped


def _own(value: Any) -> Any:
    """What may be kept: memory that is nobody else's part, and that nobody writes any more."""
    if isinstance(value, np.ndarray):
        kept = value if value.base is None else value.copy()  # a row of a batch would hold all of it
        kept.setflags(write=False)
        return kept
    return value


def _arrays(value: Any) -> list[Any]:
    """The arrays in a result, those in nested mappings too."""
    if isinstance(value, Mapping):
        return [array for inner in value.values() for array in _arrays(inner)]
    return [value]

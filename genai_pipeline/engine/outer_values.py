"""What a loop's body reads of a request besides its tokens, e.g. the states of an encoder.

Two sequences with the same tokens have the same state only if these values are the same too, and rows share a run
only where their values can be stacked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from genai_pipeline.backends.protocol import LoadedGraph
from genai_pipeline.engine.body_stage import port_bindings
from genai_pipeline.engine.sequence import Outer
from genai_pipeline.graph.plan import ScopePlan
from genai_pipeline.metadata.expressions import names


class OuterValues:
    """The outer values of one loop."""

    def __init__(self, body: ScopePlan, graphs: Mapping[str, LoadedGraph]) -> None:
        self._stacked: dict[str, bool] = {}  # value key -> whether every port that reads it has a batch axis
        for stage in body.stages:
            inputs = graphs[stage.spec.run or ""].signature.inputs
            for port, binding in port_bindings(stage):
                for name in names(binding.expr):
                    key = stage.reads[name]
                    if "/" not in key and not key.startswith("loop."):
                        self._stacked[key] = self._stacked.get(key, True) and inputs[port].batched

    def of(self, values: Mapping[str, Any]) -> Outer:
        """Those of a request."""
        if not self._stacked:
            return Outer()
        digests = {key: digest(values[key]) for key in self._stacked}
        shapes = tuple(np.shape(values[key]) if stacked else digests[key] for key, stacked in self._stacked.items())
        return Outer(hashlib.blake2b(b"".join(digests.values()), digest_size=16).digest(), shapes)


def digest(value: Any) -> bytes:
    """Equal for equal values of one type."""
    array = np.ascontiguousarray(value)
    content = repr(value).encode() if array.dtype == object else array.tobytes()
    head = f"{array.dtype.str}{np.shape(value)}".encode()
    return hashlib.blake2b(head + content, digest_size=16).digest()

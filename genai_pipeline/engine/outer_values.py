"""What a loop's body reads of the scopes around it besides its tokens, e.g. the states of an encoder.

Two sequences with the same tokens have the same state only if these values are the same too, and rows share a run
only where their values can be stacked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from genai_pipeline.backends.protocol import LoadedGraph
from genai_pipeline.engine.body_stage import has_rows
from genai_pipeline.engine.feeds import local_key
from genai_pipeline.engine.sequence import Outer
from genai_pipeline.graph.plan import ScopePlan, bound_ports, key_of
from genai_pipeline.metadata.expressions import names


class OuterValues:
    """The outer values of one loop.

    ``known``: keys of those by which no sequence needs to be told from another, as its tokens' identities do that;
    None where no state of its sequences is kept.
    """

    def __init__(self, body: ScopePlan, graphs: Mapping[str, LoadedGraph], *, known: frozenset[str] | None) -> None:
        self._stacked: dict[str, bool] = {}  # of graphs: value key -> whether every port that reads it has a batch axis
        for key, batched in _port_reads(body, graphs):
            self._stacked[key] = self._stacked.get(key, True) and batched
        operations = (stage for stage in body.stages if stage.spec.op is not None)
        reads = {key for stage in operations for key in stage.reads.values() if local_key(key, body.id) is None}
        told_apart = (self._stacked.keys() | reads) - (known or frozenset())
        constant = {key for key in told_apart if key.startswith("data.")}  # of the package: the same for all sequences
        self._digested = [] if known is None else sorted(told_apart - constant)

    def of(self, values: Mapping[str, Any]) -> Outer:
        """Those of a sequence with these values."""
        found = {key: digest(values[key]) for key in self._digested}
        joined = hashlib.blake2b(b"".join(found.values()), digest_size=16).digest() if found else b""
        return Outer(joined, tuple(self._part(key, values, found) for key in self._stacked))

    def _part(self, key: str, values: Mapping[str, Any], digests: Mapping[str, bytes]) -> object:
        """What rows of one run have in common: the shape of a value that is stacked, else the value itself."""
        if self._stacked[key]:
            return np.shape(values[key])
        return digests.get(key) or digest(values[key])


def _port_reads(body: ScopePlan, graphs: Mapping[str, LoadedGraph]) -> Iterator[tuple[str, bool]]:
    """Outer values that graphs take, each with whether the port has a batch axis."""
    for stage in body.stages:
        if stage.spec.run is None:
            continue
        for port, binding in bound_ports(stage.spec):
            for name in names(binding.expr):
                key = key_of(stage.reads, name)
                if local_key(key, body.id) is None:
                    yield key, has_rows(stage, graphs[stage.spec.run], port)


def digest(value: Any) -> bytes:
    """Equal for equal values of one type; lists and mappings item by item."""
    made = hashlib.blake2b(digest_size=16)
    if isinstance(value, Mapping):
        for key, item in value.items():
            made.update(repr(key).encode() + digest(item))
    elif isinstance(value, list | tuple) and not all(isinstance(item, int | float) for item in value):
        made.update(f"list{len(value)}".encode())
        for item in value:
            made.update(digest(item))
    else:
        array = np.ascontiguousarray(value)
        made.update(f"{array.dtype.str}{np.shape(value)}".encode())
        made.update(repr(value).encode() if array.dtype == object else array.tobytes())
    return made.digest()

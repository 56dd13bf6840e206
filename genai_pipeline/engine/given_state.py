"""State that a loop takes from components that ran before it (``from``): put into a row when its sequence enters.

What is taken are ordinary outputs of these components: the plan has a body stage read them as
``state:COMPONENT.OUTPUT``, so that whoever runs the component publishes them under the keys of its outputs, keeps them
while a loop needs them, and needs to know nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import RequestError
from genai_pipeline.graph.plan import ScopePlan, StagePlan, StatePlan
from genai_pipeline.graph.uses import STATE_PREFIX
from genai_pipeline.kv.pool import KvPool

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Taken:
    """One state entry: its component, its number among the component's, and where each of its tensors comes from."""

    component: str
    entry: int
    tensors: tuple[tuple[str, int], ...]  # value key, and the batch axis of the value
    counted: bool  # whether its size is known without a request, and part of what a row takes


class GivenState:
    """Of one loop: ``keys`` are those of the values that its state starts as."""

    def __init__(self, body: ScopePlan, components: Mapping[str, Sequence[StatePlan]]) -> None:
        self._taken = tuple(_taken(body, components))
        self.keys = frozenset(key for taken in self._taken for key, _ in taken.tensors)

    def nbytes(self, values: Values) -> int:
        """Bytes of the state of a sequence with these values, as far as only they tell (see ``bytes_per_row``)."""
        open_ended = (taken for taken in self._taken if not taken.counted)
        return 2 * sum(np.asarray(values[key]).nbytes for taken in open_ended for key, _ in taken.tensors)

    def put(self, pool: KvPool, row: int, values: Values) -> None:
        """Write the state of a sequence with these values into its new, empty row. Raises RequestError."""
        for taken in self._taken:
            pool.start(row, taken.component, taken.entry, [_own(values[key], axis, key) for key, axis in taken.tensors])


def _taken(body: ScopePlan, components: Mapping[str, Sequence[StatePlan]]) -> Iterator[_Taken]:
    for stage in body.stages:
        component = stage.spec.run or ""
        for entry, state in enumerate(components.get(component, ())):
            if state.source is not None:
                known = state.update != "fixed" or all(tensor.length is not None for tensor in state.tensors)
                yield _Taken(component, entry, tuple(_places(stage, state)), known)


def _places(stage: StagePlan, state: StatePlan) -> Iterator[tuple[str, int]]:
    source = (state.source or "").partition(".")[0]
    for tensor in state.tensors:
        yield stage.reads[f"{STATE_PREFIX}{source}.{tensor.given}"], tensor.shape.index("batch")


def _own(value: Any, axis: int, key: str) -> NDArray[Any]:
    """A value of one row without its batch axis."""
    array = np.asarray(value)
    if array.ndim <= axis or array.shape[axis] != 1:
        raise RequestError(f"'{key}' has the shape {list(array.shape)}: state for one row is taken from it")
    own: NDArray[Any] = np.moveaxis(array, axis, 0)[0]
    return own

"""State that left its row: what ``KvPool.save`` gives, taken apart into what grows with tokens and what does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv.geometry import TensorLayout
from genai_pipeline.kv.pool import SavedTokens
from genai_pipeline.types import numpy_dtype


class SavedShape:
    """How the saved state of one loop is made up: which arrays are [tokens, ...], and which are whole states."""

    def __init__(self, components: Mapping[str, Sequence[StatePlan]]) -> None:
        self._components = {name: tuple(plans) for name, plans in components.items()}
        states = [state for plans in self._components.values() for state in plans]
        self.growing = tuple(TensorLayout.of(tensor) for state in states if state.grows for tensor in state.tensors)
        self.has_whole = any(not state.grows for state in states)

    def split(self, saved: SavedTokens) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """The arrays that grow with tokens, and the others, each in order."""
        growing: list[NDArray[Any]] = []
        whole: list[NDArray[Any]] = []
        for name, plans in self._components.items():
            for plan, arrays in zip(plans, saved[name], strict=True):
                (growing if plan.grows else whole).extend(arrays)
        return growing, whole

    def empty(self) -> list[NDArray[Any]]:
        """The growing arrays of no tokens."""
        return [np.empty((0, *layout.outer, *layout.inner), layout.dtype) for layout in self.growing]

    def join(self, growing: Sequence[NDArray[Any]], whole: Sequence[NDArray[Any]]) -> SavedTokens:
        """The inverse of ``split``."""
        left, right = iter(growing), iter(whole)
        saved = {
            name: [[next(left if plan.grows else right) for _ in plan.tensors] for plan in plans]
            for name, plans in self._components.items()
        }
        assert next(left, None) is next(right, None) is None
        return saved

    def fault(self, saved: SavedTokens, num_tokens: int) -> str | None:
        """What of a state from outside does not fit, for people to read; None if all of it does."""
        if {name: len(entries) for name, entries in saved.items()} != {n: len(p) for n, p in self._components.items()}:
            return "it has the state of other components"
        for name, plans in self._components.items():
            for plan, arrays in zip(plans, saved[name], strict=True):
                if len(arrays) != len(plan.tensors):
                    return f"component '{name}' has {len(plan.tensors)} state tensors, not {len(arrays)}"
                for tensor, array in zip(plan.tensors, arrays, strict=True):
                    expected = _shape(tensor, num_tokens if plan.grows else None)
                    if array.dtype != numpy_dtype(tensor.dtype) or not _fits(array.shape, expected):
                        wanted = f"{tensor.dtype}[{', '.join('any' if n is None else str(n) for n in expected)}]"
                        return (
                            f"'{tensor.past}' of component '{name}' is {wanted}, not {array.dtype}{list(array.shape)}"
                        )
        return None


def _shape(tensor: StateTensor, num_tokens: int | None) -> list[int | None]:
    """Sizes of a saved tensor: tokens first where it grows, else as the port has it without the batch; None: any."""
    sizes = [dim if isinstance(dim, int) else None for dim in tensor.shape if dim != "batch"]
    return sizes if num_tokens is None else [num_tokens, *(size for size in sizes if size is not None)]


def _fits(shape: tuple[int, ...], expected: Sequence[int | None]) -> bool:
    return len(shape) == len(expected) and all(
        want is None or have == want for have, want in zip(shape, expected, strict=True)
    )


def arrays_of(saved: SavedTokens) -> Iterator[NDArray[Any]]:
    """All arrays of a saved state."""
    return (array for entries in saved.values() for arrays in entries for array in arrays)


def owned(array: NDArray[Any]) -> NDArray[Any]:
    """The array, or a copy where it is a view: its ``nbytes`` are then all the memory it keeps alive."""
    whole = array.base is None and array.flags.c_contiguous
    return array if whole else np.array(array, order="C")

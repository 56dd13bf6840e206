"""How far two arrays of one port are apart, and whether that is more than rounding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BOUNDS: Final[Mapping[str, float]] = {"float16": 1e-2, "bfloat16": 5e-2}
_BOUND: Final = 1e-3  # of wider floats: some ten thousand roundings of float32


@dataclass(frozen=True, slots=True)
class Bounds:
    """Values a and b are equal where |a - b| <= atol + rtol * |a|; None: by the type. Integers must be the same."""

    atol: float | None = None
    rtol: float | None = None

    def of(self, dtype: np.dtype[Any]) -> tuple[float, float]:
        """(atol, rtol) of values of a type."""
        if dtype.kind in "biuOUS":
            return 0.0, 0.0
        usual = _BOUNDS.get(dtype.name, _BOUND)
        return (usual if self.atol is None else self.atol), (usual if self.rtol is None else self.rtol)


@dataclass(frozen=True, slots=True)
class Difference:
    """Two arrays compared: the largest differences, and the first place beyond the bounds, if there is one.

    ``relative``: |a - b| over the larger of both, of places where that is above atol: below, it is noise over noise.
    ``at`` is None where all is within bounds; empty for numbers without axes, and for arrays of different shapes.
    """

    absolute: float
    relative: float
    atol: float
    rtol: float
    beyond: int = 0
    total: int = 0
    at: tuple[int, ...] | None = None
    values: tuple[Any, Any] = (None, None)  # at that place, or the shapes

    @property
    def diverges(self) -> bool:
        """Whether it is more than rounding."""
        return self.at is not None

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON-ready fields."""
        found: dict[str, Any] = {
            "max_absolute": _finite(self.absolute),
            "max_relative": _finite(self.relative),
            "atol": self.atol,
            "rtol": self.rtol,
        }
        if self.at is not None:
            found |= {"at": list(self.at), "values": [_finite(value) for value in self.values]}
            found |= {"beyond": self.beyond, "of": self.total}
        return found


def difference(
    first: NDArray[Any], other: NDArray[Any], bounds: Bounds, part: NDArray[Any] | None = None
) -> Difference:
    """Compare two arrays; ``part``: a mask of the places that count. NaN equals NaN."""
    import numpy as np

    atol, rtol = bounds.of(first.dtype)
    if (first.shape, first.dtype) != (other.shape, other.dtype):
        shapes = tuple(f"{one.dtype}{list(one.shape)}" for one in (first, other))
        return Difference(np.inf, np.inf, atol, rtol, first.size, first.size, (), (shapes[0], shapes[1]))
    if first.dtype.kind in "OUS":
        apart = (first != other).astype(np.float64)
        largest = np.ones_like(apart)
    else:
        a, b = (one.astype(np.float64) for one in (first, other))
        with np.errstate(invalid="ignore"):  # infinity less infinity
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            apart = np.where(same, 0.0, np.abs(a - b))
        apart[np.isnan(apart)] = np.inf
        if first.dtype.kind in "biu":  # whole numbers beyond 2**53 may look alike
            apart[first != other] = np.fmax(apart[first != other], 1.0)
        largest = np.fmax(np.abs(a), np.abs(b))
    if part is not None:
        apart = np.where(part, apart, 0.0)
    return _gauged(first, other, apart, largest, (atol, rtol))


def _gauged(
    first: NDArray[Any],
    other: NDArray[Any],
    apart: NDArray[np.float64],
    largest: NDArray[np.float64],
    bounds: tuple[float, float],
) -> Difference:
    import numpy as np

    atol, rtol = bounds
    if not apart.size:
        return Difference(0.0, 0.0, atol, rtol)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        allowed = atol + (rtol * np.nan_to_num(np.abs(first.astype(np.float64)), posinf=0.0) if rtol else 0.0)
        relative = np.where((apart > 0) & (largest > atol), apart / largest, 0.0)
    relative[np.isnan(relative)] = np.inf
    beyond = apart > allowed
    count = int(beyond.sum())
    sizes = float(apart.max()), float(relative.max())
    if not count:
        return Difference(*sizes, atol, rtol, total=apart.size)
    at = tuple(int(axis) for axis in np.argwhere(beyond)[0]) if apart.ndim else ()
    return Difference(*sizes, atol, rtol, count, apart.size, at, (first[at].item(), other[at].item()))


def _finite(value: Any) -> Any:
    """A value as JSON has it: what is no number or infinite is a text."""
    return str(value) if isinstance(value, float) and not abs(value) < float("inf") else value

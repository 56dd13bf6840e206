"""Symbolic sizes unified over the edges of a package: each symbol of each run of a graph ends up with one size.

A symbol belongs to a run stage (or to a loop), so the same name in two graphs is two symbols until an edge joins them.
"""

from __future__ import annotations

from dataclasses import dataclass

from genai_pipeline.graph.signature import Dim
from genai_pipeline.problems import Location, Problems


@dataclass(frozen=True, slots=True)
class End:
    """One end of an edge on one axis: whose symbol it is, its size, and how messages name the place."""

    owner: str  # stage or loop, unique in the package
    dim: Dim
    place: str  # e.g. "axis 2 of 'inputs_embeds' of decoder.onnx"


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A size and the place that fixes it."""

    size: int
    place: str


class Dims:
    """Union-find over symbols; a group of equal symbols has at most one fixed size."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._parent: dict[tuple[str, str], tuple[str, str]] = {}
        self._fixed: dict[tuple[str, str], _Fixed] = {}

    def equal(self, source: End, target: End, at: Location) -> None:
        """Require that both ends of an edge have one size; a conflict is reported at ``at`` and names both ends."""
        if isinstance(source.dim, int) and isinstance(target.dim, int):
            if source.dim != target.dim:
                self._conflict(_Fixed(source.dim, source.place), _Fixed(target.dim, target.place), "", at)
        elif isinstance(source.dim, int):
            self._fix(target, _Fixed(source.dim, source.place), at)
        elif isinstance(target.dim, int):
            self._fix(source, _Fixed(target.dim, target.place), at)
        elif source.dim and target.dim:
            self._join(source, target, at)

    def size(self, owner: str, dim: Dim) -> Dim:
        """The size of a symbol if one was found, else the symbol."""
        if isinstance(dim, int) or not dim:
            return dim
        fixed = self._fixed.get(self._root((owner, dim)))
        return fixed.size if fixed is not None else dim

    def _fix(self, end: End, fixed: _Fixed, at: Location) -> None:
        """Give a symbol its size."""
        if not end.dim:
            return
        root = self._root((end.owner, str(end.dim)))
        known = self._fixed.setdefault(root, fixed)
        if known.size != fixed.size:
            self._conflict(known, fixed, f"{end.place} ('{end.dim}') ", at)

    def _join(self, source: End, target: End, at: Location) -> None:
        """Make two symbols one."""
        one, two = self._root((source.owner, str(source.dim))), self._root((target.owner, str(target.dim)))
        if one == two:
            return
        first, second = self._fixed.pop(one, None), self._fixed.get(two)
        self._parent[one] = two
        if first is None:
            return
        if second is None:
            self._fixed[two] = first
        elif first.size != second.size:
            self._conflict(first, second, f"{target.place} ('{target.dim}') ", at)

    def _root(self, symbol: tuple[str, str]) -> tuple[str, str]:
        """The representative of a symbol's group."""
        while (parent := self._parent.get(symbol, symbol)) != symbol:
            self._parent[symbol] = self._parent.get(parent, parent)
            symbol = parent
        return symbol

    def _conflict(self, one: _Fixed, two: _Fixed, symbol: str, at: Location) -> None:
        """Report two sizes for one axis."""
        link = f"{symbol}would have two sizes: " if symbol else ""
        message = f"{link}{one.place} is {one.size}, {two.place} is {two.size}"
        self._problems.error(at, "port.dims", message, "both ends of a binding have the same sizes")

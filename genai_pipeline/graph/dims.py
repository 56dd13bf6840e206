"""Sizes unified over the edges of a package: each symbol of each run of a graph ends up with one size.

A symbol belongs to a run stage (or to a loop), so the same name in two graphs is two symbols until an edge joins them.
Sizes that only a run knows are ``RunSize``: those of a loop (rows, new tokens, tokens in all) are equal to each other,
or to the length of an input, by accident only, so a symbol that stands for two of them is a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass

from genai_pipeline.graph.signature import Dim
from genai_pipeline.problems import Location, Problems


@dataclass(frozen=True, slots=True)
class RunSize:
    """A size that only a run knows: ``owner`` is the loop or input it belongs to, ``name`` how messages call it."""

    owner: str
    name: str
    varies: bool = True  # from run to run of a loop; else once per request

    def __str__(self) -> str:
        return self.name


Size = int | RunSize


@dataclass(frozen=True, slots=True)
class End:
    """One end of an edge on one axis: whose symbol it is, its size, and how messages name the place."""

    owner: str  # stage or loop, unique in the package
    dim: Dim | RunSize
    place: str  # e.g. "axis 2 of 'inputs_embeds' of decoder.onnx"


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A size and the place that fixes it."""

    size: Size
    place: str


class Dims:
    """Union-find over symbols; a group of equal symbols has at most one size.

    ``spans``: components declare how many tokens their runs take, so new tokens may well be of a fixed number.
    """

    def __init__(self, problems: Problems, *, spans: bool = False) -> None:
        self._problems = problems
        self._spans = spans
        self._parent: dict[tuple[str, str], tuple[str, str]] = {}
        self._fixed: dict[tuple[str, str], _Fixed] = {}
        self._reported: set[tuple[tuple[str, str], frozenset[Size]]] = set()

    def equal(self, source: End, target: End, at: Location) -> None:
        """Require that both ends of an edge have one size; a conflict is reported at ``at`` and names both ends."""
        one, two = source.dim, target.dim
        if not isinstance(one, str) and not isinstance(two, str):
            if self._clash(one, two):
                self._conflict(_Fixed(one, source.place), _Fixed(two, target.place), "", at)
        elif not isinstance(one, str):
            self._fix(target, _Fixed(one, source.place), at)
        elif not isinstance(two, str):
            self._fix(source, _Fixed(two, target.place), at)
        elif one and two:
            self._join(source, target, at)

    def size(self, owner: str, dim: Dim) -> Dim:
        """The number that a symbol stands for if one was found, else the symbol."""
        if isinstance(dim, int) or not dim:
            return dim
        fixed = self._fixed.get(self._root((owner, dim)))
        return fixed.size if fixed is not None and isinstance(fixed.size, int) else dim

    def _clash(self, one: Size, two: Size) -> bool:
        """Whether two sizes differ other than by the accident of a run or of a request."""
        if isinstance(one, int) and isinstance(two, int):
            return one != two
        if isinstance(one, RunSize) and isinstance(two, RunSize):
            return one != two and (one.varies or two.varies)
        varies = any(isinstance(size, RunSize) and size.varies for size in (one, two))
        return varies and not self._spans

    def _fix(self, end: End, fixed: _Fixed, at: Location) -> None:
        """Give a symbol its size."""
        if not end.dim:
            return
        root = self._root((end.owner, str(end.dim)))
        known = self._fixed.setdefault(root, fixed)
        if not self._clash(known.size, fixed.size):
            return
        kinds = frozenset((known.size, fixed.size))
        if isinstance(known.size, int) or isinstance(fixed.size, int) or (root, kinds) not in self._reported:
            self._reported.add((root, kinds))  # a symbol with two sizes of a run meets them on many edges
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
        elif self._clash(first.size, second.size):
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

"""A scope while it is built: its stages, the values it has, and how a name written in it is resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from genai_pipeline.graph.uses import Use
from genai_pipeline.graph.values import Value
from genai_pipeline.metadata.model import StageSpec

ScopeKind = Literal["root", "decode", "iterate", "for_each"]
MEASURES: Final = (".length", ".shape")  # of a value that has no such field


@dataclass(frozen=True, slots=True)
class Read:
    """A name read at a place: ``name`` is the part of it that is a value, ``owner`` the scope that has the value."""

    use: Use
    name: str
    value: Value
    owner: Scope


@dataclass(slots=True, eq=False)
class StageNode:
    """A stage in its scope, with what it reads once names are resolved."""

    spec: StageSpec
    scope: Scope  # where it publishes
    items: Scope | None = None  # of ``for_each`` on a stage: where it reads
    body: Scope | None = None
    reads: list[Read] = field(default_factory=list)
    outputs: dict[str, Value] = field(default_factory=dict)  # by port or published name

    @property
    def id(self) -> str:
        """The id of the stage, unique in its scope."""
        return self.spec.id

    @property
    def reading_scope(self) -> Scope:
        """The scope in which its bindings are resolved."""
        return self.items or self.scope

    def published(self) -> Iterator[tuple[str, Value]]:
        """What the stage publishes, by port or published name; outputs that only readers named come last."""
        yield from self.outputs.items()
        known = {value.key for value in self.outputs.values()}
        for value in self.scope.values.values():
            if value.producer == self.id and value.key not in known:
                yield value.name.removeprefix(f"{self.id}."), value

    def outer_reads(self) -> Iterator[Read]:
        """What the stage, its body and theirs read from the scope it stands in or from one further out."""
        inner = [self.items, self.body]
        for read in self.reads:
            if read.owner not in inner:
                yield read
        for read in self.body.outer_reads() if self.body else ():
            if read.owner not in inner:
                yield read


@dataclass(slots=True, eq=False)
class Scope:
    """One scope; ``values`` by the name its stages use, ``loop`` by the x of ``loop.x``."""

    id: str
    kind: ScopeKind
    parent: Scope | None = None
    stage: StageSpec | None = None  # whose body it is
    nodes: list[StageNode] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    loop: dict[str, Value] = field(default_factory=dict)
    open: dict[str, Value] = field(default_factory=dict)  # stages whose outputs only a graph or an op knows
    ends: list[Read] = field(default_factory=list)  # what the loop reads after each step

    @property
    def prefix(self) -> str:
        """What keys of this scope start with."""
        return f"{self.id}/" if self.id else ""

    def chain(self) -> Iterator[Scope]:
        """This scope and those around it, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def subtree(self) -> Iterator[Scope]:
        """This scope and all below it."""
        yield self
        for node in self.nodes:
            if node.items is not None:
                yield node.items
            if node.body is not None:
                yield from node.body.subtree()

    def outer_reads(self) -> Iterator[Read]:
        """Everything read in this scope or below that a scope further out, or this one, has."""
        yield from self.ends
        for node in self.nodes:
            yield from node.outer_reads()

    def resolve(self, name: str) -> tuple[str, Value, Scope] | None:
        """The value a name stands for, as (matched name, value, owner): the inner before the outer, the longest match.

        ``x.length`` is a value of that name if there is one, else the length of ``x``.
        """
        candidates = [name, *(name.removesuffix(end) for end in MEASURES if name.endswith(end))]
        for candidate in candidates:
            for scope in self.chain():
                if (value := scope._exact(candidate)) is not None:
                    return candidate, value, scope
        for scope in self.chain():
            if (value := scope._open(candidates[-1])) is not None:
                return candidates[-1], value, scope
        return None

    def visible(self) -> list[str]:
        """Every name that can be read here, for hints."""
        found: dict[str, None] = {}
        for scope in self.chain():
            found.update(dict.fromkeys(scope.values))
            found.update(dict.fromkeys(f"loop.{name}" for name in scope.loop))
        return [name for name in found if ":" not in name]

    def _exact(self, name: str) -> Value | None:
        if name in self.values:
            return self.values[name]
        owner, _, rest = name.partition(".")
        if self.loop and self.stage is not None and owner in ("loop", self.stage.id):
            return self.loop.get(rest)
        return None

    def _open(self, name: str) -> Value | None:
        """A field of something whose fields are not known yet, remembered under its full name."""
        parts = name.split(".")
        for count in range(len(parts) - 1, 0, -1):
            prefix = ".".join(parts[:count])
            source = self.open.get(prefix) or self.values.get(prefix)
            if source is not None and source.open:
                inner = source.inner and source.inner + name.removeprefix(prefix)
                value = replace(source, key=f"{self.prefix}{name}", name=name, inner=inner, open=False, declared=False)
                self.values[name] = value
                return value
        return None

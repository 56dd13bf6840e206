"""The compiled form of a package: what the engine walks. Frozen, and free of runtime objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import networkx as nx

from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.metadata.model import Binding, ComponentSpec, KvUpdate, PackageSpec, StageSpec
from genai_pipeline.types import numpy_dtype


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One state tensor of a component: a past port and the present port that replaces it.

    ``shape`` is the port's shape for one run with the axes "batch" and "length" named, e.g. ("batch", 3, "length", 64).
    """

    layer: int
    part: str
    past: str
    present: str | None
    dtype: str
    shape: tuple[int | str, ...]
    given: str | None = None  # the output of the component named by ``from`` that it starts as
    length: int | None = None  # of a state that is written once, where a graph fixes it

    @property
    def has_length(self) -> bool:
        """Whether one axis of the state is the number of tokens."""
        return "length" in self.shape

    @property
    def elements_per_token(self) -> int:
        """Elements one token takes (for states without a length axis: elements of the whole state)."""
        total = 1
        for dim in self.shape:
            total *= dim if isinstance(dim, int) else 1
        return total

    @property
    def bytes_per_token(self) -> int:
        """Bytes one token takes (without a length axis: bytes of the whole state)."""
        return self.elements_per_token * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class StatePlan:
    """One state entry of a component with its geometry resolved from declaration and graph."""

    update: KvUpdate
    tensors: tuple[StateTensor, ...]
    window: tuple[int | None, ...] = ()  # per layer; empty: no window
    initial: float = 0.0
    source: str | None = None
    keep_session: bool = False

    @property
    def grows(self) -> bool:
        """Whether the state has a length axis that follows the tokens."""
        return self.update in ("in_place", "append", "scatter")


@dataclass(frozen=True, slots=True)
class ComponentPlan:
    """A component with the signature of its graph(s) and its resolved state."""

    spec: ComponentSpec
    model: str  # file inside the package
    model_later: str | None
    signature: GraphSignature  # the ports of both graphs, where there are two
    states: tuple[StatePlan, ...] = ()
    bytes_per_token: int = 0  # of all growing states
    bytes_fixed: int = 0  # of states without a length axis, per sequence


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage as the engine runs it. Value keys are ``scope/name`` ("generate/logits"; root: "prompt.tokens")."""

    id: str
    spec: StageSpec
    reads: Mapping[str, str]  # dotted name as written -> value key (ports, when, prompt, count, ... alike)
    outputs: Mapping[str, str]  # port or published name -> value key; outputs nobody reads are left out
    drop_after: tuple[str, ...] = ()  # keys this stage reads last
    after_choice: bool = False  # depends on loop.next_token: runs once the token is chosen
    batch_key: tuple[str, ...] = ()  # input ports whose values must be equal for rows to share a run
    body: ScopePlan | None = None
    each: str | None = None  # key of the list whose items a ``for_each`` stage or group goes over


def bound_ports(stage: StageSpec) -> Iterator[tuple[str, Binding]]:
    """(port, binding) of every input of a stage; a family ``x.{i}`` bound to a list gives one pair per member."""
    for port, bound in stage.inputs.items():
        if isinstance(bound, tuple):
            for i, member in enumerate(bound):
                yield port.replace("{i}", str(i)).replace("{layer}", str(i)), member
        else:
            yield port, bound


def key_of(reads: Mapping[str, str], name: str) -> str:
    """The key of a name as an expression has it: ``x.shape`` reads ``x`` unless a value has that very name."""
    return reads[name] if name in reads else reads[name.rpartition(".")[0]]


@dataclass(frozen=True, slots=True)
class ScopePlan:
    """The stages of one scope in topological order; ``levels`` groups those that may run side by side."""

    id: str  # "" for the root, else the path of stage ids ("speak/codebooks")
    kind: Literal["root", "decode", "iterate", "for_each"]
    stages: tuple[StagePlan, ...]
    levels: tuple[tuple[str, ...], ...]
    publishes: Mapping[str, str] = field(default_factory=dict)  # name outside the scope -> value key
    reads: Mapping[str, str] = field(default_factory=dict)  # by the loop, after a step: logits, ...


@dataclass(frozen=True)
class ExecutionPlan:
    """A package that passed every check, compiled. ``graph`` is the root scope as a networkx DiGraph."""

    package: PackageSpec
    graph: nx.DiGraph[str]
    scopes: Mapping[str, nx.DiGraph[str]]  # by scope id
    root: ScopePlan
    components: Mapping[str, ComponentPlan]
    outputs: Mapping[str, str]  # declared output -> value key
    capabilities: frozenset[str]
    facts: Mapping[str, Any] = field(default_factory=dict)  # notes for inspect: variants chosen, ...

    def stage(self, stage_id: str) -> StagePlan:
        """The root stage with that id."""
        return next(stage for stage in self.root.stages if stage.id == stage_id)


__all__ = ["Binding", "ComponentPlan", "ExecutionPlan", "ScopePlan", "StagePlan", "StatePlan", "StateTensor"]

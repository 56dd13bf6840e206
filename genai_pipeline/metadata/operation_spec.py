"""What an operation declares of itself: inputs, outputs, parameters, and where it may run.

**Batch axis.** Ranks count the batch axis: ``states[1, s, d]`` has rank 3. A value one rank below its input gains the
axis; what an operation gives has it too. ``axis`` parameters count a value's axes as they are, batch axis included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from genai_pipeline.metadata.call_parameters import CallParameter

InputKind = Literal["tensor", "text", "any"]
OutputKind = Literal["tensor", "text", "list", "any"]
Where = Literal["inline", "offload"]
RESULT: Final = "result"  # the port of an operation that gives one value


@dataclass(frozen=True, slots=True)
class OperationInput:
    """A port that takes a value.

    ``kind``: an array or number, a text, or whatever the operation says in ``doc``; ``many``: one value or a list of
    them, which the operation gets as a list; ``numbers``: which element types it takes.
    """

    name: str
    doc: str
    rank: int | None = None  # with the batch axis; None: any
    optional: bool = False
    many: bool = False
    kind: InputKind = "tensor"
    numbers: Literal["any", "float", "integer"] = "any"


@dataclass(frozen=True, slots=True)
class OperationOutput:
    """A port that gives a value.

    ``dtype_like`` and ``rank_like`` name the input whose dtype and rank it has, ``like`` one that gives both.
    """

    name: str
    doc: str
    kind: OutputKind = "tensor"
    dtype: str | None = None
    rank: int | None = None
    like: str | None = None
    dtype_like: str | None = None
    rank_like: str | None = None


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """An operation: ``offload`` runs on worker threads, ``inline`` in the step, and in loops' bodies if ``in_body``."""

    name: str
    doc: str
    inputs: tuple[OperationInput, ...]
    outputs: tuple[OperationOutput, ...]
    parameters: Mapping[str, CallParameter] = field(default_factory=dict)
    deterministic: bool = True
    runs: Where = "inline"
    in_body: bool = True
    reads_range: bool = False  # in a body, what it gives depends on which tokens of the sequence run

    def input(self, name: str) -> OperationInput | None:
        """The input of that name."""
        return next((port for port in self.inputs if port.name == name), None)

    def output(self, name: str) -> OperationOutput | None:
        """The output of that name."""
        return next((port for port in self.outputs if port.name == name), None)


def table(*specs: OperationSpec) -> dict[str, OperationSpec]:
    """Specs by name."""
    return {spec.name: spec for spec in specs}

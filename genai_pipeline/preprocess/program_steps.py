"""What a step of an image or audio program is, and what a modality brings for the shared runner of programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.metadata.call_parameters import Declared

SOURCE: Final = "source"  # the form of what a request gives, before anything has read it

StepCode = Callable[[Any, Mapping[str, Any]], Any]  # (value under work, parameters) -> value under work
StepCheck = Callable[[Mapping[str, Any]], Iterator[str]]  # parameters as written, defaults among them -> faults
# (step, parameters as written, defaults among them) of a whole program -> (place of the step, fault)
ProgramCheck = Callable[[Sequence[tuple["Step", Mapping[str, Any]]]], Iterator[tuple[int, str]]]


def _no_faults(_: Mapping[str, Any]) -> Iterator[str]:
    return iter(())


def _fits(_: Sequence[tuple[Step, Mapping[str, Any]]]) -> Iterator[tuple[int, str]]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Source:
    """What a request gives for an item, and the name of its input, which errors carry as ``param``."""

    media: Any
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step. ``forms``: each form in which it takes the value under work, and the form in which it leaves that.

    What the value under work is, is the modality's own affair; the first step of a program gets a ``Source``.
    ``publishes``: the fields that exist from this step on; ``withdraws``: those of earlier steps that it makes void;
    ``totals``: those it publishes of the item too where it works on the item's parts.
    ``check`` finds faults of parameters that do not go together; parameters may be unevaluated expressions there.
    """

    name: str
    doc: str
    forms: Mapping[str, str]
    parameters: Declared
    run: StepCode
    publishes: frozenset[str] = frozenset()
    withdraws: frozenset[str] = frozenset()
    totals: frozenset[str] = frozenset()
    check: StepCheck = _no_faults


@dataclass(frozen=True, slots=True)
class StepKit:
    """The steps of a modality; ``finish`` makes the item's fields of the value that the last step leaves.

    ``ends``: the forms a program may end in; ``parts``: those in which steps work on parts of the item (windows of a
    sound), so that what they publish are fields of the parts. ``check`` finds steps that do not fit each other.
    """

    steps: Mapping[str, Step]
    ends: frozenset[str]
    finish: Callable[[Any], dict[str, Any]]
    parts: frozenset[str] = frozenset()
    check: ProgramCheck = _fits


def by_name(*steps: Step) -> dict[str, Step]:
    """Steps under their names."""
    return {step.name: step for step in steps}

"""The program of a workflow: what it runs and in which order, and every construct that has no counterpart here.

Steps stand under ``steps``; in the form between, ``graph`` holds one node, with ``nodes``, ``setup`` and ``body``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport

_HINT = "write the package by hand: docs/metadata.md"
_ROLES = ("tokens", "text", "logits", "embedding", "embeddings", "hidden_states", "tensor", "opaque")


@dataclass(frozen=True, slots=True)
class Invoke:
    """One call of a component: ports to values; ``in_loop``: whether a loop's body makes it."""

    component: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    in_loop: bool
    at: str


@dataclass(frozen=True, slots=True)
class Program:
    """All calls in the order of the file, what loops carry (cell -> next value), and how many loops there are."""

    invokes: tuple[Invoke, ...]
    carried: Mapping[str, str]
    loops: int

    def calls(self, component: str) -> Iterator[Invoke]:
        """The calls of one component."""
        return (invoke for invoke in self.invokes if invoke.component == component)

    def pairs(self, component: str) -> dict[str, str]:
        """Past port -> present port of a component, as its loop carries one to the other."""
        found = {}
        for call in self.calls(component):
            ports = {value: port for port, value in call.outputs.items()}
            for port, value in call.inputs.items():
                if call.in_loop and self.carried.get(value) in ports:
                    found[port] = ports[self.carried[value]]
        return found


def read_program(workflow: ConfigNode, report: ImportReport) -> Program:
    """The program; constructs that cannot be mapped are refused by name."""
    reader = _Reader(workflow, report)
    reader.steps(workflow.get("steps"), 0)
    reader.steps(workflow.get("graph"), 0)
    if reader.loops > 1:
        report.refused(
            workflow.file, workflow.at("steps"), f"has {reader.loops} loops, of which one can be mapped", _HINT
        )
    return Program(tuple(reader.invokes), reader.carried, reader.loops)


class _Reader:
    """Walks the steps once and collects."""

    def __init__(self, workflow: ConfigNode, report: ImportReport) -> None:
        self._workflow = workflow
        self._report = report
        self.invokes: list[Invoke] = []
        self.carried: dict[str, str] = {}
        self.loops = 0

    def steps(self, steps: ConfigNode | None, depth: int) -> None:
        """A list of steps, or one node of the form with ``graph``; ``depth``: loops around them."""
        for step in _each(steps):
            kind = step.text("kind")
            known = {"sequence": self._sequence, "invoke": self._invoke, "emit": self._emit, "loop": self._loop}
            if kind in known:
                known[kind](step, depth)
            else:
                on = f" on '{step.text('predicate', '?')}'" if kind == "branch" else ""
                self._refuse(step, f"the construct '{kind}'{on} has no counterpart")

    def _sequence(self, step: ConfigNode, depth: int) -> None:
        self.steps(step.get("steps"), depth)
        self.steps(step.get("nodes"), depth)

    def _invoke(self, step: ConfigNode, depth: int) -> None:
        inputs, outputs = _names(step.mapping("inputs")), _names(step.mapping("outputs"))
        self.invokes.append(Invoke(step.text("component"), inputs, outputs, depth > 0, step.path))

    def _emit(self, step: ConfigNode, depth: int) -> None:
        output = step.text("output")
        declared = self._workflow.mapping("outputs").mapping(output)
        role = declared.text("role", "opaque")
        if role not in _ROLES:
            self._refuse(step, f"the output '{output}' is {role}, which is not mapped")

    def _loop(self, step: ConfigNode, depth: int) -> None:
        self.loops += 1
        if depth:
            self._refuse(step, "a loop inside a loop has no counterpart (nested speech and codebook loops)")
        self.steps(step.get("setup"), depth)
        self.steps(step.get("steps"), depth + 1)
        self.steps(step.get("body"), depth + 1)
        for carry in _each(step.get("carried")):
            if "body_input" in carry:  # the form with ``graph`` has a name for the value on each side of the loop
                self.carried[carry.text("body_input")] = carry.text("body_output")
            else:
                self.carried[carry.text("cell")] = carry.text("next")

    def _refuse(self, step: ConfigNode, why: str) -> None:
        self._report.refused(step.file, step.path, why, _HINT)


def _each(steps: ConfigNode | None) -> Iterator[ConfigNode]:
    """The steps of a list; a mapping is one step."""
    if steps is not None and isinstance(steps.value, dict):
        yield steps
    elif steps is not None:
        yield from steps.items()


def _names(mapping: ConfigNode) -> dict[str, str]:
    return {key: mapping.text(key) for key in mapping.keys}

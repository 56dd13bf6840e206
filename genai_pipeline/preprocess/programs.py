"""Programs: the steps that make an item's fields of an image or a sound, checked once and run for each item.

The steps of a modality are loaded when a program first needs them, with none of their libraries: these load when a
step runs.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.errors import ExpressionError, MediaError, PackageInvalidError
from genai_pipeline.metadata.call_parameters import LITERAL_TYPES, REQUIRED, call_values, check_call
from genai_pipeline.metadata.expressions import names, parse
from genai_pipeline.metadata.model import ProgramSpec, ProgramStep
from genai_pipeline.preprocess.program_steps import SOURCE, Source, Step, StepKit
from genai_pipeline.problems import Location, Problems, nearest, one_of

# Modality -> the module whose KIT (a StepKit) has its steps and what makes the fields of an item.
_HOMES: Final[Mapping[str, str]] = {
    "image": "genai_pipeline.preprocess.image.steps",
    "audio": "genai_pipeline.preprocess.audio.steps",
}

_READABLE: Final = "parameters."
_NOWHERE: Final = Location("")


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program: ``run`` prepares one item; ``publishes`` names the fields that every item has."""

    name: str
    publishes: frozenset[str]
    _steps: tuple[tuple[Step, ProgramStep], ...]
    _finish: Callable[[Any], dict[str, Any]]

    @classmethod
    def of(cls, spec: ProgramSpec, modality: str) -> Program:
        """The program of a spec. Raises PackageInvalidError with every problem of a spec that is wrong."""
        problems = Problems()
        check_program(spec, modality, problems)
        if problems.failed:
            raise PackageInvalidError(f"the program '{spec.name}' cannot run", problems.sorted())
        kit = _kit(modality)
        assert kit is not None
        steps = tuple((kit.steps[step.op], step) for step in spec.steps)
        return cls(spec.name, _published((step for step, _ in steps), kit.parts), steps, kit.finish)

    def run(self, source: Any, parameters: Mapping[str, Any], *, param: str | None = None) -> dict[str, Any]:
        """The fields of one item. ``parameters``: the request's, as ``parameters.name``; ``param``: the input's name.

        Raises MediaError for a source that cannot be read or prepared, also for parameters that do not fit it.
        """
        value: Any = Source(source, param)
        for step, written in self._steps:
            value = step.run(value, self._values(step, written, parameters, param))
        fields = self._finish(value)
        assert fields.keys() == self.publishes, (self.name, sorted(fields), sorted(self.publishes))
        return fields

    def _values(
        self, step: Step, written: ProgramStep, parameters: Mapping[str, Any], param: str | None
    ) -> dict[str, Any]:
        try:
            return call_values(written.params, step.parameters, parameters.__getitem__)
        except ExpressionError as error:
            where = f"the step {step.name} of the program '{self.name}'"
            raise MediaError(f"{where}: {error.message}", param=param, hint=error.hint) from None
        except KeyError as error:
            raise MediaError(f"the program '{self.name}' reads {error}, which has no value", param=param) from None


def check_program(spec: ProgramSpec, modality: str, problems: Problems, readable: Container[str] | None = None) -> None:
    """Report unknown steps, wrong parameters, and steps in an order that cannot work.

    ``readable``: the names that expressions may read, ``parameters.name`` of each declared parameter; None: any of
    that form.
    """
    kit = _kit(modality)
    if kit is None:
        message = f"inputs of modality {modality} take no program"
        problems.error(spec.at, "program.modality", message, f"programs prepare {one_of(_HOMES)}")
        return
    if not spec.steps:
        problems.error(spec.at, "program.empty", f"the program '{spec.name}' has no steps", "the first is decode")
        return
    before = len(problems)
    form: str | None = SOURCE
    for written in spec.steps:
        step = kit.steps.get(written.op)
        if step is None:
            hint = nearest(written.op, kit.steps) or f"steps of {modality} programs are {one_of(kit.steps, 20)}"
            message = f"there is no step '{written.op}' for {modality}"
            problems.error(written.at, "program.unknown_step", message, hint)
            form = None  # what follows cannot be told
            continue
        _check_parameters(step, written, problems)
        _check_names(step, written, readable, problems)
        if form is not None and form not in step.forms:
            _report_order(step, written, form, kit, problems)
            form = None
        form = step.forms[form] if form is not None else None
    if form is not None and form not in kit.ends:
        message = f"the program '{spec.name}' ends in {_form(form)}, which nothing can take"
        problems.error(spec.steps[-1].at, "program.end", message, f"it must end in {one_of(map(_form, kit.ends))}")
    if len(problems) == before:
        steps = [(kit.steps[written.op], written) for written in spec.steps]
        for place, fault in kit.check([(step, _as_written(step, written)) for step, written in steps]):
            problems.error(spec.steps[place].at, "program.parameters", f"the step '{steps[place][0].name}': {fault}")


def _check_parameters(step: Step, written: ProgramStep, problems: Problems) -> None:
    before = len(problems)
    check_call(f"the step '{step.name}'", written.params, step.parameters, written.at, problems)
    if len(problems) == before:
        for fault in step.check(_as_written(step, written)):
            problems.error(written.at, "program.parameters", f"the step '{step.name}': {fault}")


def _as_written(step: Step, written: ProgramStep) -> dict[str, Any]:
    """Parameters with their defaults, expressions not evaluated; None where one that is required is missing."""
    defaults = {name: parameter.default for name, parameter in step.parameters.items()}
    return {name: None if v is REQUIRED else v for name, v in {**defaults, **written.params}.items()}


def _check_names(step: Step, written: ProgramStep, readable: Container[str] | None, problems: Problems) -> None:
    for name, value in written.params.items():
        if name in step.parameters and step.parameters[name].type not in LITERAL_TYPES:
            for read in sorted(_names(value)):
                if not (read.startswith(_READABLE) if readable is None else read in readable):
                    message = f"{name} of the step '{step.name}' reads '{read}'"
                    problems.error(written.at, "program.reads", message, "programs read declared parameters only")


def _names(value: Any) -> Iterator[str]:
    items = value if isinstance(value, list | tuple) else [value]
    for item in items:
        if isinstance(item, str):
            with contextlib.suppress(ExpressionError):  # reported with the parameter's type
                yield from names(parse(item, _NOWHERE))


def _report_order(step: Step, written: ProgramStep, form: str, kit: StepKit, problems: Problems) -> None:
    able = sorted(other.name for other in kit.steps.values() if form in other.forms)
    message = f"the step '{step.name}' cannot work on {_form(form)}: it takes {one_of(map(_form, step.forms))}"
    hint = f"here can stand {one_of(able)}" if able else "nothing can follow here"
    problems.error(written.at, "program.order", message, hint)


def _published(steps: Iterable[Step], parts: frozenset[str]) -> frozenset[str]:
    fields: frozenset[str] = frozenset()
    form = SOURCE
    for step in steps:
        fields = (fields - step.withdraws) | (step.totals if form in parts else step.publishes)
        form = step.forms[form]
    return fields


def _form(form: str) -> str:
    return "what the request gives" if form == SOURCE else form


def _kit(modality: str) -> StepKit | None:
    home = _HOMES.get(modality)
    if home is None:
        return None
    kit: StepKit = importlib.import_module(home).KIT
    return kit

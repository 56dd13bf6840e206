"""A package on several backends: every graph run of the first repeated by the others, then whole requests of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.cli.parity.differences import Bounds
from genai_pipeline.cli.parity.free_runs import FreeRun, compare_results, run_once
from genai_pipeline.cli.parity.sides import AskedSide
from genai_pipeline.cli.parity.watching import ComponentParity, PortDifference, Watcher
from genai_pipeline.cli.samples import described, first_that_fits, with_fitting_options
from genai_pipeline.errors import GraphLoadError, GraphRunError

if TYPE_CHECKING:
    from genai_pipeline.backends.protocol import Backend
    from genai_pipeline.metadata.model import PackageSpec
    from genai_pipeline.pipeline import Pipeline
    from genai_pipeline.types import Result

Inputs = Mapping[str, Any]

# Nothing of a request may be left out because an earlier one had it, and none may be guessed.
LOADING: Final[Mapping[str, Any]] = {"max_batch": 1, "prefix_cache": False, "encoder_cache": 0, "draft": "off"}
_CHOICES: Final[Mapping[str, Any]] = {"temperature": 0, "seed": 0, "logprobs": True, "top_logprobs": 2}


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be compared; ``requests``: inputs by name that are given, others are made up."""

    sides: Sequence[AskedSide]
    requests: Sequence[Inputs]
    tokens: int
    bounds: Bounds
    margin: float  # nats
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class SideReport:
    """One side: its components, the first divergence of all, and its requests; ``stopped``: what ended those."""

    side: AskedSide
    components: tuple[ComponentParity, ...]
    first: PortDifference | None = None
    free: tuple[FreeRun, ...] = ()
    stopped: str = ""

    def faults(self, margin: float) -> list[str]:
        """What is wrong, in words; nothing when all is well."""
        own = [fault for run in self.free for fault in run.faults(margin)]
        errors = [one.error.message for one in self.components if one.error is not None]
        apart = [] if self.first is None else [told(self.first)]
        return [*errors, *apart, *own, *([self.stopped] if self.stopped else [])]


@dataclass(frozen=True, slots=True)
class BackendsReport:
    """What came of a comparison; ``inputs`` says what was asked."""

    sides: tuple[SideReport, ...]
    inputs: tuple[str, ...]
    identity: Mapping[str, str]
    unreached: tuple[str, ...]

    def passed(self, margin: float) -> bool:
        """Whether every side answers as the first."""
        return not any(side.faults(margin) for side in self.sides)


Load = Callable[..., "Pipeline"]  # of a backend and providers


def compare_backends(load: Load, asked: Asked) -> BackendsReport:
    """Run the requests on the first side with the others repeating each graph run, then on each of the others alone.

    Raises what the first side raises, and what tells that another's runtime or provider is not there.
    """
    from genai_pipeline.backends.registry import make_backend
    from genai_pipeline.backends.twins import Side, TwinBackend

    watcher = Watcher(len(asked.sides), asked.bounds)
    sides = [Side(side.text, make_backend(side.backend, asked.threads), side.providers) for side in asked.sides]
    twins: Backend = TwinBackend(sides, watcher)
    with load(twins, None) as pipe:
        watcher.begin(pipe.plan)
        firsts = [_ask(pipe, request, asked.tokens) for request in asked.requests]
        used = [inputs for inputs, _ in firsts]
        inputs = tuple(map(partial(_used, pipe.plan.package), asked.requests, used))
        identity = dict(pipe.identity)
    reports = []
    for index, side in enumerate(asked.sides):
        found = tuple(watcher.found[index][graph] for graph in watcher.found[0])
        if index and all(one.error is None for one in found):
            reports.append(_free(load, asked, side, firsts, SideReport(side, found, watcher.firsts[index])))
        else:
            reports.append(SideReport(side, found, watcher.firsts[index]))
    unreached = tuple(dict.fromkeys(one.component for one in reports[0].components if not one.runs))
    return BackendsReport(tuple(reports), inputs, identity, unreached)


def _free(
    load: Load, asked: Asked, side: AskedSide, firsts: Sequence[tuple[Inputs, Result]], report: SideReport
) -> SideReport:
    """The requests on a side of its own."""
    runs: list[FreeRun] = []
    stopped = ""
    try:
        with load(side.backend, side.providers) as pipe:
            for inputs, first in firsts:
                runs.append(compare_results(first, _run(pipe, inputs, asked.tokens), asked.bounds))
    except (GraphLoadError, GraphRunError) as error:
        stopped = error.message
    return SideReport(side, report.components, report.first, tuple(runs), stopped)


def _ask(pipe: Pipeline, request: Inputs, tokens: int) -> tuple[Inputs, Result]:
    """A request on the first side, and the inputs that it was made of."""

    return first_that_fits(pipe.plan.package, lambda sample: (sample, _run(pipe, sample, tokens)), request)


def _run(pipe: Pipeline, inputs: Inputs, tokens: int) -> Result:
    options = {**_CHOICES, "max_new_tokens": tokens}
    return with_fitting_options(options, lambda fitting: run_once(pipe, inputs, fitting))


def _used(package: PackageSpec, request: Inputs, inputs: Inputs) -> str:
    """What a request was made of, for people to read; ``inputs``: also what was made up."""
    parts = []
    for spec in package.inputs.values():
        name = spec.name
        if name in request:
            parts.append(f"{name}: {request[name]}")
        else:
            made = f"made up, {described(spec, inputs[name])}" if name in inputs else "left out"
            parts.append(f"{name}: {made}")
    return "; ".join(parts) or "nothing"


def told(apart: PortDifference) -> str:
    """A divergence in words."""
    found = apart.difference
    one, other = found.values
    where = f" at {list(found.at)}" if found.at else ""
    place = f"component '{apart.component}' ({apart.model}), port '{apart.port}' ({apart.kind}), step {apart.step}"
    sizes = f"largest difference {found.absolute:.3g}, relative {found.relative:.3g}"
    bounds = f"allowed {found.atol:g} + {found.rtol:g} of the value"
    return (
        f"{place}: {other} where the first has {one}{where}; {sizes}; {bounds}; {found.beyond} of {found.total} beyond"
    )

"""``genai-pipeline verify PACKAGE --backends A,B``: the same package on several backends, compared run by run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.cli.option_groups import OptionGroup, given, option
from genai_pipeline.cli.output import Output, write, write_json
from genai_pipeline.cli.outputs import run_inputs
from genai_pipeline.cli.packages import declared
from genai_pipeline.cli.reports import table
from genai_pipeline.cli.run_options import PROMPT
from genai_pipeline.cli.run_request import RunRequest
from genai_pipeline.errors import OptionError

if TYPE_CHECKING:
    from genai_pipeline.cli.parity.backends import Asked, BackendsReport, SideReport
    from genai_pipeline.cli.parity.watching import ComponentParity, Kind
    from genai_pipeline.metadata.model import PackageSpec
    from genai_pipeline.pipeline import Pipeline

CONTEXT: Final = 1024  # tokens: state that is updated in place is copied whole at each step
_MEDIA: Final = PROMPT.only("images", "audio", "parameters")

BACKENDS: Final = OptionGroup(
    "Backends compared with each other",
    {
        "backends": option(
            list[str],
            "--backends",
            metavar="LIST",
            help="A,B: backends, or BACKEND:PROVIDER+PROVIDER; the first is right.",
        ),
        "atol": option(float, min=0, help="Absolute difference that counts as equal (default: by type)."),
        "rtol": option(float, min=0, help="And relative to the value (default: by type)."),
        **_MEDIA.options,
    },
)
_HEADER: Final = ("BACKEND", "COMPONENT", "NODES", "RUNS", "STATE", "OUTPUTS", "LOGITS", "RESULT")


def only_for_backends(options: Mapping[str, Any]) -> None:
    """Refuse options of the comparison of backends where none is asked for. Raises OptionError."""
    for name in given(options):
        if name in BACKENDS.options:
            raise OptionError(f"{name} has no effect without --backends", param=name, hint="add --backends A,B")


def verify_backends(
    output: Output,
    package: str,
    options: Mapping[str, Any],
    texts: Sequence[str],
    *,
    tokens: int,
    margin: float,
    as_json: bool,
) -> bool:
    """Compare and report; whether all backends agree. Raises OptionError and what loading and running raise."""
    from genai_pipeline.cli.parity.backends import Asked, compare_backends
    from genai_pipeline.cli.parity.differences import Bounds
    from genai_pipeline.cli.parity.sides import parse_sides

    for name in ("backend", "providers"):
        if name in given(options):
            message = f"{name} and --backends exclude each other"
            raise OptionError(message, param=name, hint="write BACKEND:PROVIDER in --backends")
    sides = parse_sides(options["backends"])
    request = RunRequest.of(options, as_json=True)
    loading = dict(request.loading)
    spec = declared(package, loading.get("precision"))
    asked = Asked(
        sides,
        _requests(spec, texts, request.options),
        tokens,
        Bounds(options["atol"], options["rtol"]),
        margin,
        loading.pop("threads", None),
    )
    loader = _Loader(output, package, {**_context(spec), **loading}, asked.threads)
    with output.waiting("comparing ..."):
        report = compare_backends(loader, asked)
    if as_json:
        write_json(_json(report, asked))
    else:
        write(table([_HEADER, *_rows(report, margin)]))
        _notes(output, report, margin)
    return report.passed(margin)


class _Loader:
    """Loads the package on a backend by name, or on one that is made already."""

    def __init__(self, output: Output, package: str, options: Mapping[str, Any], threads: int | None) -> None:
        self._output = output
        self._package = package
        self._options = options
        self._threads = threads

    def __call__(self, backend: Any, providers: Sequence[str] | None) -> Pipeline:
        """Load it; ``providers`` None: those of the environment, or of the package."""
        from genai_pipeline.cli.packages import loaded
        from genai_pipeline.cli.parity.backends import LOADING

        chosen: dict[str, Any] = {"backend": backend}
        if providers is not None:
            chosen["providers"] = list(providers)
        if isinstance(backend, str) and self._threads is not None:
            chosen["threads"] = self._threads
        return loaded(self._output, self._package, {**LOADING, **self._options, **chosen})


def _requests(spec: PackageSpec | None, texts: Sequence[str], options: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What is given of each request, by the names of inputs and parameters."""
    if spec is None:
        return [{}]  # its metadata cannot be read, which loading it will say
    return [run_inputs(spec, text, options)[0] for text in texts or (None,)]


def _context(spec: PackageSpec | None) -> dict[str, int]:
    from genai_pipeline.config import LoadOptions
    from genai_pipeline.engine.limits import context_length

    return {} if spec is None else {"context_length": min(CONTEXT, context_length(spec, LoadOptions()))}


def _json(report: BackendsReport, asked: Asked) -> dict[str, Any]:
    margin = asked.margin
    return {
        "package": report.identity,
        "inputs": list(report.inputs),
        "tokens": asked.tokens,
        "tolerance": {"atol": asked.bounds.atol, "rtol": asked.bounds.rtol, "margin": margin},
        "passed": report.passed(margin),
        "not_reached": list(report.unreached),
        "backends": [
            {
                "backend": side.side.text,
                "components": [component.to_dict() for component in side.components],
                "first_divergence": None if side.first is None else side.first.to_dict(),
                "requests": [run.to_dict(margin) for run in side.free],
                "stopped": side.stopped,
                "faults": side.faults(margin),
            }
            for side in report.sides
        ],
    }


def _rows(report: BackendsReport, margin: float) -> Iterator[Sequence[str]]:
    for index, side in enumerate(report.sides):
        for component in side.components:
            yield (
                side.side.text,
                _label(component, side.components),
                ", ".join(f"{count} {provider}" for provider, count in component.placement.items()) or "-",
                str(component.runs),
                *(_worst(component, kind) for kind in ("state", "output", "logits")),
                "reference" if not index else _result(component),
            )
        if index:
            yield (
                side.side.text,
                "requests",
                "-",
                str(len(side.free)),
                "-",
                _largest(side),
                "-",
                _answers(side, margin),
            )


def _label(one: ComponentParity, components: Sequence[ComponentParity]) -> str:
    """A component, with its graph where it has two."""
    alone = sum(other.component == one.component for other in components) == 1
    return one.component if alone else f"{one.component} {one.model}"


def _worst(component: ComponentParity, kind: Kind) -> str:
    worst = component.worst.get(kind)
    return "-" if worst is None else f"{worst.difference.absolute:.3g}"


def _largest(side: SideReport) -> str:
    return f"{max(run.largest for run in side.free):.3g}" if side.free else "-"


def _result(component: ComponentParity) -> str:
    if component.error is not None:
        when = "not loaded" if component.failed_at is None else f"fails at step {component.failed_at}"
        return f"{when}: {component.error.message}"
    if component.first is not None:
        return f"'{component.first.port}' diverges at step {component.first.step}"
    return "equal" if component.runs else "not reached"


def _answers(side: SideReport, margin: float) -> str:
    if not side.free:
        return side.stopped or "not run"
    tokens, equal = sum(run.count for run in side.free), sum(run.equal for run in side.free)
    said = f"{equal} of {tokens} tokens equal" if tokens else "outputs equal"
    return "; ".join([said, *(fault for run in side.free for fault in run.faults(margin))][: 1 if tokens else None])


def _notes(output: Output, report: BackendsReport, margin: float) -> None:
    """What the table does not say."""
    for inputs in report.inputs:
        output.note(f"input: {inputs}")
    for side in report.sides:
        for note in (note for component in side.components for note in component.notes):
            output.note(f"{side.side.text}: {note}")
        for fault in side.faults(margin):
            output.note(f"{side.side.text}: {fault}")
    for name in report.unreached:
        output.note(f"the input does not reach the component '{name}'")

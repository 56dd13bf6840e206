"""``validate --run``: one short request, made up of what a package declares, and which components it did not reach.

Where the package has answers of a reference recorded, it must still give them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.cli.samples import first_that_fits, with_fitting_options
from genai_pipeline.errors import GenaiError, MediaError, ReferenceFileError
from genai_pipeline.problems import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from genai_pipeline.metadata.model import PackageSpec
    from genai_pipeline.pipeline import Pipeline

_TOKENS: Final = 2  # the first comes of a prefill run, the second of a decode run
_MACHINE: Final = 5  # exit code of errors that are the machine's, not the package's


def problems_of(spec: PackageSpec, path: Path, selection: Mapping[str, Any]) -> list[Problem]:
    """Load a package on a selection of backend and providers and run one request.

    Raises errors of the machine: no runtime, no provider, a missing extra.
    """
    import genai_pipeline as gp

    try:
        with gp.load(path, **selection) as pipe:
            found = [*_run(pipe), *_diverging(pipe)]
            ran = pipe.stats().get("graph_seconds", {})
    except GenaiError as error:
        if error.exit_code == _MACHINE:
            raise
        return [Problem(spec.at, "trial.failed", f"a request fails: {error.message}", error.hint)]
    return [*found, *_not_reached(pipe, ran)]


def _run(pipe: Pipeline) -> list[Problem]:
    """Run the first sample that the package takes, as short as it lets it be; a note where it takes none."""
    options = {"max_new_tokens": _TOKENS}
    try:
        first_that_fits(
            pipe.plan.package,
            lambda sample: with_fitting_options(options, lambda fitting: pipe.run(sample, **fitting)),
        )
    except MediaError as error:
        hint = "run it with a picture or a sound of your own: genai-pipeline run PACKAGE --image FILE --audio FILE"
        return [Problem(pipe.plan.package.at, "trial.no_sample", f"no sample fits: {error.message}", hint, "note")]
    return []


def _diverging(pipe: Pipeline) -> Iterator[Problem]:
    """Answers that differ from those recorded in the package, or a record that cannot be read."""
    from genai_pipeline.cli.parity.compare import Tolerance, compare
    from genai_pipeline.cli.parity.recorded import REFERENCE_FILE, has_recorded, read_recorded

    package = pipe.plan.package
    if not has_recorded(package.root):
        return
    try:
        reference = read_recorded(package.root)
    except ReferenceFileError as error:
        yield Problem(package.at, "trial.reference", error.message, error.hint)
        return
    for result in compare(pipe, reference):
        for fault in result.faults(Tolerance()):
            message = f"other answers than in {REFERENCE_FILE} ({reference.source}): {result.text!r}: {fault}"
            yield Problem(package.at, "trial.diverges", message, "genai-pipeline verify PACKAGE shows all of it")


def _not_reached(pipe: Pipeline, ran: Mapping[str, float]) -> Iterator[Problem]:
    """Components that have spent no time."""
    hint = "it is not checked by this: run the package with an input of your own"
    for name, component in pipe.plan.components.items():
        if not ran.get(name):
            message = f"the sample does not reach the component '{name}'"
            yield Problem(component.spec.at, "trial.not_reached", message, hint, "note")

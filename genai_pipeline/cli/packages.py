"""What commands do with a PACKAGE argument: find it (pulling a known name, with progress) and compile it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genai_pipeline.cli.output import Output
    from genai_pipeline.graph.plan import ExecutionPlan


def located(output: Output, package: str, precision: str | None) -> Path:
    """The folder or metadata file of a package; a known name is pulled first when it is not in the cache."""
    from genai_pipeline.importers.pull import resolve

    with output.progress() as progress:
        return resolve(package, precision=precision, progress=progress)


def compiled(output: Output, package: str, precision: str | None) -> ExecutionPlan:
    """The execution plan of a package; raises PackageInvalidError with all problems when it has any."""
    import genai_pipeline as gp
    from genai_pipeline.errors import PackageInvalidError

    path = located(output, package, precision)
    spec, problems = gp.validate(path)
    if spec is None or any(problem.severity == "error" for problem in problems):
        raise PackageInvalidError(f"{path} is not a valid package", tuple(problems))
    return gp.compile(spec)

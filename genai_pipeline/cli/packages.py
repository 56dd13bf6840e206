"""What commands do with a PACKAGE argument: find it (pulling a known name, with progress), compile it, load it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from genai_pipeline.errors import PackageInvalidError

if TYPE_CHECKING:
    from genai_pipeline.checking import CheckedPackage
    from genai_pipeline.cli.output import Output
    from genai_pipeline.graph.plan import ExecutionPlan
    from genai_pipeline.metadata.model import InputSpec, PackageSpec
    from genai_pipeline.pipeline import Pipeline


def loaded(output: Output, package: str, options: Mapping[str, Any]) -> Pipeline:
    """The package ready to run, loaded with the given options of ``gp.load``."""
    import genai_pipeline as gp

    with output.progress() as progress:
        return gp.load(package, progress=progress, **options)


def checked(
    output: Output, package: str, precision: str | None, selection: Mapping[str, Any]
) -> tuple[str, CheckedPackage]:
    """The path of a package and what the checks found.

    ``selection``: backend and providers that were asked for, which must be there. Raises PackageInvalidError with all
    problems when it has any, ProviderUnavailableError, RuntimeMissingError.
    """
    from genai_pipeline.checking import check_package
    from genai_pipeline.import_checks import check_made
    from genai_pipeline.importers.pull import lending, resolve
    from genai_pipeline.loading import load_options, require_runtime

    options = load_options(selection)
    if selection:
        require_runtime(options)
    with output.progress() as progress:
        path = resolve(package, precision=precision, progress=progress, check=check_made)
        found = check_package(
            path, lending(progress), backend=options.backend, providers=options.providers, precision=precision
        )
    if found.plan is None:
        raise PackageInvalidError(
            f"{path} is not a valid package", found.problems, hint=f"genai-pipeline validate {path}"
        )
    return str(path), found


def compiled(output: Output, package: str, precision: str | None) -> ExecutionPlan:
    """The execution plan of a package; raises PackageInvalidError with all problems when it has any."""
    _, found = checked(output, package, precision, {})
    assert found.plan is not None
    return found.plan


def declared(package: str, precision: str | None = None) -> PackageSpec | None:
    """What a package declares; None where that cannot be read. Nothing is loaded, nor fetched but from a hub.

    Raises PackageNotFoundError.
    """
    from genai_pipeline.importers.pull import metadata_of
    from genai_pipeline.metadata.load import load_package

    return load_package(metadata_of(package, precision))[0]


def texts_of(spec: PackageSpec | None) -> list[InputSpec]:
    """The texts among the inputs of a package."""
    return [text for text in spec.inputs.values() if text.modality == "text"] if spec is not None else []

"""Models of other formats into packages that hold: what an import made is checked before it gets its name.

The importers know metadata and graphs; whether a package can run is known above them. So they write into a folder
beside the target here, ``validate``'s own check looks at it, and a package with errors is gone before anyone saw it.
Pulls go the same way with ``import_checks.check_made``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from genai_pipeline.import_checks import check_made, refuse_errors
from genai_pipeline.importers import ctranslate2, genai_config, gguf, optimum, workflow
from genai_pipeline.importers.package_writer import new_package, package_name
from genai_pipeline.importers.progress import Progress, silent
from genai_pipeline.importers.pull import pull
from genai_pipeline.importers.report import ImportReport

Make = Callable[[Path, str], ImportReport]  # makes a package folder, by its path and name


def import_gguf(
    source: Path,
    target: Path,
    *,
    precision: str = "fast",
    name: str | None = None,
    layers: int | None = None,
    progress: Progress = silent,
) -> None:
    """``importers.gguf.import_gguf``, with the package checked. Raises ImportRefusedError for one that has errors."""

    def make(folder: Path, title: str) -> ImportReport:
        gguf.import_gguf(source, folder, precision=precision, name=title, layers=layers, progress=progress)
        return ImportReport()  # it has no table of keys

    _checked(make, source, target, name, progress)


def import_ctranslate2(
    source: Path, target: Path, *, precision: str = "float32", name: str | None = None, progress: Progress = silent
) -> None:
    """``importers.ctranslate2.import_ctranslate2``, with the package checked. Raises ImportRefusedError."""

    def make(folder: Path, title: str) -> ImportReport:
        ctranslate2.import_ctranslate2(source, folder, precision=precision, name=title, progress=progress)
        return ImportReport()

    _checked(make, source, target, name, progress)


def import_genai_config(
    source: Path, target: Path, *, name: str | None = None, eos: Sequence[str] = (), progress: Progress = silent
) -> ImportReport:
    """``importers.genai_config.import_genai_config``, with the package checked. Raises ImportRefusedError."""

    def make(folder: Path, title: str) -> ImportReport:
        return genai_config.import_genai_config(source, folder, name=title, eos=eos, progress=progress)

    return _checked(make, source, target, name, progress)


def import_optimum(
    source: Path, target: Path, *, precision: str | None = None, name: str | None = None, progress: Progress = silent
) -> ImportReport:
    """``importers.optimum.import_optimum``, with the package checked. Raises ImportRefusedError."""

    def make(folder: Path, title: str) -> ImportReport:
        return optimum.import_optimum(source, folder, precision=precision, name=title, progress=progress)

    return _checked(make, source, target, name, progress)


def import_workflow(
    source: Path, target: Path, *, name: str | None = None, eos: Sequence[str] = (), progress: Progress = silent
) -> ImportReport:
    """``importers.workflow.import_workflow``, with the package checked. Raises ImportRefusedError."""

    def make(folder: Path, title: str) -> ImportReport:
        return workflow.import_workflow(source, folder, name=title, eos=eos, progress=progress)

    return _checked(make, source, target, name, progress)


def pull_package(
    name: str,
    *,
    source: Path | None = None,
    precision: str | None = None,
    offline: bool | None = None,
    progress: Progress = silent,
) -> Path:
    """``importers.pull.pull``, with the package checked; one with errors does not get into the cache.

    Raises ImportRefusedError for it.
    """
    return pull(name, source=source, precision=precision, offline=offline, progress=progress, check=check_made)


def _checked(make: Make, source: Path, target: Path, name: str | None, progress: Progress) -> ImportReport:
    title = package_name(name, target)
    with new_package(target) as folder:
        report = make(folder, title)
        progress(f"checking {title}", 0, 0)
        refuse_errors(folder, str(source), report.rows)
    return report

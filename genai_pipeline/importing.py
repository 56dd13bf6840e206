"""Models of other formats into packages that hold: what an import made is checked before it gets its name.

The importers know metadata and graphs; whether a package can run is known above them. So they write into a folder
beside the target here, ``validate``'s own check looks at it, and a package with errors is gone before anyone saw it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from genai_pipeline.checking import check_package
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers import cache, ctranslate2, genai_config, gguf, optimum, workflow
from genai_pipeline.importers.package_writer import new_package, package_name
from genai_pipeline.importers.progress import Progress, silent
from genai_pipeline.importers.pull import pull
from genai_pipeline.importers.report import ImportReport, ReportRow
from genai_pipeline.problems import Problem

_INDEX = re.compile(r"\[\d+\]")
_HINT = "mend the source and import it again"

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
    """``importers.pull.pull``, with the package checked; one with errors does not stay in the cache.

    Raises ImportRefusedError for it.
    """
    folder = pull(name, source=source, precision=precision, offline=offline, progress=progress)
    progress(f"checking {name}", 0, 0)
    try:
        _check(folder, name, ())
    except ImportRefusedError:
        cache.discard(folder)
        raise
    return folder


def _checked(make: Make, source: Path, target: Path, name: str | None, progress: Progress) -> ImportReport:
    title = package_name(name, target)
    with new_package(target) as folder:
        report = make(folder, title)
        progress(f"checking {title}", 0, 0)
        _check(folder, str(source), report.rows)
    return report


def _check(folder: Path, what: str, rows: Sequence[ReportRow]) -> None:
    """Raises ImportRefusedError with every error of a package, each at the key of the source that it comes from."""
    refusals = ImportReport()
    for problem in check_package(folder).problems:
        if problem.severity == "error":
            file, key = _origin(problem, folder, rows)
            refusals.refused(file, key, problem.message, problem.hint)
    refusals.check(what, _HINT)


def _origin(problem: Problem, folder: Path, rows: Iterable[ReportRow]) -> tuple[str, str]:
    """File and key that a problem comes from: those of the row that is about its place, else the package's own."""
    path = _INDEX.sub("", problem.at.path)
    parts = path.split(".") if path else []
    for count in range(len(parts), 0, -1):
        place = ".".join(parts[:count])
        found = [row for row in rows if row.outcome == "mapped" and row.detail.partition(":")[0] == place]
        if found:
            keys = " or ".join(dict.fromkeys(row.key for row in found if row.file == found[0].file))
            return found[0].file, ".".join([keys, *parts[count:]] if keys else parts[count:])
    file = Path(problem.at.file)
    return (file.relative_to(folder).as_posix() if file.is_relative_to(folder) else str(file)), problem.at.path

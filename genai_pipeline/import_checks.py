"""A package that was just made is checked before it is kept: its errors refuse it, each where it comes from.

Whether a package can run is known above the importers, so imports and pulls take ``check_made`` from their callers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from genai_pipeline.checking import check_package
from genai_pipeline.importers.report import ImportReport, ReportRow
from genai_pipeline.problems import Problem

_INDEX = re.compile(r"\[\d+\]")
_HINT = "mend the source and import it again"


def check_made(folder: Path, what: str, rows: Sequence[ReportRow]) -> None:
    """Raises ImportRefusedError with every error of a package, each at the key of the source that it comes from.

    ``what`` names the source, ``rows`` are about its keys.
    """
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

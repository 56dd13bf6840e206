"""What became of every key and file of a source: the table that an import prints and keeps in the package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.package_writer import write_json

REPORT_FILE = "import_report.json"
Outcome = Literal["mapped", "dropped", "refused"]
_SHOWN = 20  # refusals that a message lists


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One key (or a file as a whole: key "") and what became of it; ``hint`` says what to do about a refusal."""

    file: str
    key: str
    outcome: Outcome
    detail: str  # mapped: where to; else: why
    hint: str = ""

    @property
    def line(self) -> str:
        """The row as one line of text."""
        where = f"{self.file}: {self.key}" if self.key else self.file
        link = "->" if self.outcome == "mapped" else f"{self.outcome}:"
        return f"{where} {link} {self.detail}" + (f" ({self.hint})" if self.hint else "")


class ImportReport:
    """Collects rows while an import decides; ``check`` stops it when anything was refused."""

    def __init__(self) -> None:
        self._rows: list[ReportRow] = []

    @property
    def rows(self) -> tuple[ReportRow, ...]:
        """The rows so far, in the order they were added."""
        return tuple(self._rows)

    def mapped(self, file: str, key: str, to: str) -> None:
        """The key became the field ``to`` of the package."""
        self._rows.append(ReportRow(file, key, "mapped", to))

    def dropped(self, file: str, key: str, why: str) -> None:
        """The key changes no answer here, because ..."""
        self._rows.append(ReportRow(file, key, "dropped", why))

    def refused(self, file: str, key: str, why: str, hint: str = "") -> None:
        """The key changes the answer and the package cannot say it; the import stops at ``check``."""
        self._rows.append(ReportRow(file, key, "refused", why, hint))

    def uncovered(self, root: ConfigNode) -> tuple[ConfigNode, ...]:
        """The values of a config file that no row is about; a row about a mapping covers all of it."""
        covered = {row.key for row in self._rows if row.file == root.file}
        return tuple(leaf for leaf in root.leaves() if covered.isdisjoint(_prefixes(leaf.path)))

    def check(self, what: str, hint: str = "") -> None:
        """Raises ``error(what, hint)`` if anything was refused."""
        if any(row.outcome == "refused" for row in self._rows):
            raise self.error(what, hint)

    def error(self, what: str, hint: str = "") -> ImportRefusedError:
        """The error with every refusal, of which there is at least one. ``what`` names the source.

        The message lists those that fit a screen; ``hint`` comes behind those of the refusals.
        """
        refused = [row for row in self._rows if row.outcome == "refused"]
        assert refused
        shown, more = refused[:_SHOWN], len(refused) - _SHOWN
        lines = [f"  {_said(row)}" for row in shown] + [f"  ... and {more} more"] * (more > 0)
        hints = dict.fromkeys([*(row.hint for row in shown), hint])
        return ImportRefusedError(
            f"{what} cannot be imported as it is:\n" + "\n".join(lines),
            rows=tuple(asdict(row) for row in refused),
            hint="; ".join(filter(None, hints)),
        )

    def write(self, folder: Path) -> None:
        """Keeps the table in a package, as ``import_report.json``."""
        write_json(folder / REPORT_FILE, {"rows": [asdict(row) for row in self._rows]})

    def text(self) -> str:
        """The table as lines: what was dropped last, where it is read."""
        ordered = sorted(self._rows, key=lambda row: ("mapped", "refused", "dropped").index(row.outcome))
        return "".join(f"{row.line}\n" for row in ordered)


def _prefixes(path: str) -> Iterable[str]:
    """The key path and those of what holds it."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _said(row: ReportRow) -> str:
    return f"{row.file}: {row.key}: {row.detail}" if row.key else f"{row.file}: {row.detail}"

"""What every kind of import offers: the fields it has in a recipe, how they are read, and the work itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from genai_pipeline.importers.progress import Progress
from genai_pipeline.importers.records import RecordReader


@dataclass(frozen=True, slots=True)
class ImportJob:
    """One import to do: the checked files by name, and the package folder to make, which does not exist yet.

    Metadata, README and other files of the recipe's folder are added afterwards.
    """

    name: str  # the package's
    precision: str
    files: Mapping[str, Path]
    target: Path
    progress: Progress


class ImportStep(Protocol):
    """What one recipe says about its import."""

    @property
    def precisions(self) -> tuple[str, ...]:
        """The variants that can be made; the first is the default."""

    def make(self, job: ImportJob) -> None:
        """Make the package folder. Raises ImportModelError for files that are not what the kind expects."""


@dataclass(frozen=True, slots=True)
class ImportKind:
    """``read(fields, names)`` reads the record ``import`` of a recipe whose sources give files of these names.

    ``fields`` and ``optional`` are its keys besides ``kind`` and ``precisions``. ``code`` are the modules and folders
    that do the work: packages are made anew when they change.
    """

    fields: tuple[str, ...]
    read: Callable[[RecordReader, Sequence[str]], ImportStep]
    code: tuple[Path, ...]
    optional: tuple[str, ...] = ()


def read_precisions(fields: RecordReader) -> tuple[str, ...]:
    """The key ``precisions``, which every kind has."""
    return fields.texts("precisions")

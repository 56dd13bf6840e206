"""``kind: ctranslate2``: a Whisper model of CTranslate2, whose files have their usual names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from genai_pipeline.importers.kinds.step import ImportJob, ImportKind, read_precisions
from genai_pipeline.importers.records import RecordReader

_HERE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Ctranslate2Step:
    """Import of all fetched files."""

    precisions: tuple[str, ...]

    def make(self, job: ImportJob) -> None:
        """Make the package with the CTranslate2 importer."""
        from genai_pipeline.importers.ctranslate2.importer import import_files

        import_files(job.files, job.target, precision=job.precision, name=job.name, progress=job.progress)


def _read(fields: RecordReader, names: Sequence[str]) -> Ctranslate2Step:
    return Ctranslate2Step(read_precisions(fields))


KIND = ImportKind(fields=(), read=_read, code=(_HERE / "ctranslate2", _HERE / "graphs", _HERE / "package_writer.py"))

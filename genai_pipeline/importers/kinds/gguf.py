"""``kind: gguf``: weights, tokenizer and chat template of a decoder in one GGUF file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from genai_pipeline.importers.kinds.step import ImportJob, ImportKind, read_precisions
from genai_pipeline.importers.records import RecordReader

_HERE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class GgufStep:
    """Import of the GGUF file called ``file``."""

    precisions: tuple[str, ...]
    file: str

    def make(self, job: ImportJob) -> None:
        """Make the package with the GGUF importer."""
        from genai_pipeline.importers.gguf import import_gguf

        import_gguf(job.files[self.file], job.target, precision=job.precision, name=job.name, progress=job.progress)


def _read(fields: RecordReader, names: Sequence[str]) -> GgufStep:
    return GgufStep(read_precisions(fields), fields.choice("file", names))


KIND = ImportKind(fields=("file",), read=_read, code=(_HERE / "gguf", _HERE / "graphs", _HERE / "package_writer.py"))

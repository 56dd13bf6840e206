"""``kind: piper``: a voice of Piper's, a graph and its JSON file; ``dictionary`` as in ``kind: g2p``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from genai_pipeline.importers.kinds.step import ImportJob, ImportKind, read_precisions
from genai_pipeline.importers.records import RecordReader

_HERE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class PiperStep:
    """Import of the voice ``file`` with the settings in ``config``."""

    precisions: tuple[str, ...]
    file: str
    config: str
    dictionary: str | None

    def make(self, job: ImportJob) -> None:
        """Make the package with the importer of voices."""
        from genai_pipeline.importers.g2p import write_dictionary
        from genai_pipeline.importers.piper import import_piper

        import_piper(job.files[self.file], job.files[self.config], job.target, progress=job.progress)
        if self.dictionary is not None:
            write_dictionary(job.files[self.dictionary], job.target)


def _read(fields: RecordReader, names: Sequence[str]) -> PiperStep:
    return PiperStep(
        precisions=read_precisions(fields),
        file=fields.choice("file", names),
        config=fields.choice("config", names),
        dictionary=fields.choice("dictionary", names) or None,
    )


KIND = ImportKind(
    fields=("file", "config"),
    optional=("dictionary",),
    read=_read,
    code=(_HERE / "piper", _HERE / "g2p" / "dictionary.py", _HERE / "package_writer.py"),
)

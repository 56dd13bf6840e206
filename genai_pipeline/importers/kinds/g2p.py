"""``kind: g2p``: a recurrent encoder-decoder from letters to phonemes, as one archive of numpy arrays.

``dictionary`` names a fetched pronunciation dictionary (a word and its phonemes on each line), which becomes
``dictionary.json``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from genai_pipeline.importers.kinds.step import ImportJob, ImportKind, read_precisions
from genai_pipeline.importers.records import RecordReader

_HERE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class G2pStep:
    """Import of the archive called ``file``."""

    precisions: tuple[str, ...]
    file: str
    dictionary: str | None

    def make(self, job: ImportJob) -> None:
        """Make the package with the importer of such archives."""
        from genai_pipeline.importers.g2p import import_g2p, write_dictionary

        import_g2p(job.files[self.file], job.target, progress=job.progress)
        if self.dictionary is not None:
            write_dictionary(job.files[self.dictionary], job.target)


def _read(fields: RecordReader, names: Sequence[str]) -> G2pStep:
    return G2pStep(
        precisions=read_precisions(fields),
        file=fields.choice("file", names),
        dictionary=fields.choice("dictionary", names) or None,
    )


KIND = ImportKind(
    fields=("file",),
    optional=("dictionary",),
    read=_read,
    code=(_HERE / "g2p", _HERE / "graphs", _HERE / "package_writer.py"),
)

"""``kind: files``: files that are ready to use are copied, under the names that the package's metadata uses.

``files`` maps names in the package to names of fetched files. ``derived`` makes small files out of fetched ones::

    derived:
      - {file: characters.json, from: rec.onnx, property: character}   # lines of an ONNX metadata property, as JSON
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from genai_pipeline.importers.kinds.onnx_property import PropertyFile, read_property_file
from genai_pipeline.importers.kinds.step import ImportJob, ImportKind, read_precisions
from genai_pipeline.importers.records import RecordReader

_FILE_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class FilesStep:
    """Copies: package file name -> fetched file name; and what is derived from fetched files."""

    precisions: tuple[str, ...]
    files: Mapping[str, str]
    derived: tuple[PropertyFile, ...]

    def make(self, job: ImportJob) -> None:
        """Copy and derive into the package folder, the same bytes every time."""
        job.target.mkdir()
        for name, fetched in self.files.items():
            job.progress(f"copying {name}", 0, 0)
            shutil.copyfile(job.files[fetched], job.target / name)
        for item in self.derived:
            item.write(job.files[item.source], job.target)


def _read(fields: RecordReader, names: Sequence[str]) -> FilesStep:
    return FilesStep(
        precisions=read_precisions(fields),
        files=fields.choices("files", _FILE_NAME, names),
        derived=tuple(
            read_property_file(item, _FILE_NAME, names) for item in fields.records("derived", PropertyFile.FIELDS)
        ),
    )


KIND = ImportKind(fields=("files",), optional=("derived",), read=_read, code=(Path(__file__).parent,))

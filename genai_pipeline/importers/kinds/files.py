"""``kind: files``: files that are ready to use are copied, under the names that the package's metadata uses.

``files`` maps names in the package to names of fetched files. What the files lack can be made of them::

    # the axis of some ports that is the batch axis, if it is not the first: it is moved there
    batch_first: {model.onnx: {state: 1}}
    # a JSON list of the lines of a metadata property of an ONNX file, with more entries before and after
    derived:
      - {file: characters.json, from: rec.onnx, property: character, first: [""], last: [" "]}
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from genai_pipeline.importers.kinds.batch_axis import move_batch_first
from genai_pipeline.importers.kinds.onnx_property import PropertyFile, read_property_file
from genai_pipeline.importers.kinds.step import ImportJob, ImportKind, read_precisions
from genai_pipeline.importers.records import RecordReader

_FILE_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class FilesStep:
    """Copies: package file name -> fetched file name; and what is made of fetched files."""

    precisions: tuple[str, ...]
    files: Mapping[str, str]
    batch_first: Mapping[str, Mapping[str, int]]  # package file name -> port -> axis
    derived: tuple[PropertyFile, ...]

    def make(self, job: ImportJob) -> None:
        """Copy and derive into the package folder, the same bytes every time."""
        job.target.mkdir()
        for name, fetched in self.files.items():
            job.progress(f"copying {name}", 0, 0)
            if name in self.batch_first:
                move_batch_first(job.files[fetched], job.target / name, self.batch_first[name])
            else:
                shutil.copyfile(job.files[fetched], job.target / name)
        for item in self.derived:
            item.write(job.files[item.source], job.target)


def _read(fields: RecordReader, names: Sequence[str]) -> FilesStep:
    files = fields.choices("files", _FILE_NAME, names)
    return FilesStep(
        precisions=read_precisions(fields),
        files=files,
        batch_first=fields.numbers("batch_first", tuple(files)),
        derived=tuple(
            read_property_file(item, _FILE_NAME, names)
            for item in fields.records("derived", PropertyFile.FIELDS, PropertyFile.OPTIONAL)
        ),
    )


_HERE = Path(__file__).parent

KIND = ImportKind(
    fields=("files",),
    optional=("batch_first", "derived"),
    read=_read,
    code=(Path(__file__), _HERE / "batch_axis.py", _HERE / "onnx_property.py"),
)

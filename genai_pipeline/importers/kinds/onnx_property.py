"""A JSON file made from a property that an ONNX file carries in its own metadata, such as a list of characters."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from genai_pipeline.errors import ImportModelError
from genai_pipeline.graph.onnx_file import read_signature
from genai_pipeline.importers.records import RecordReader


@dataclass(frozen=True, slots=True)
class PropertyFile:
    """``file`` gets the lines of the metadata property ``key`` of the ONNX file ``source``, as a JSON list.

    ``first`` and ``last`` are put before and after them: entries that the model has and its property leaves out.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ("file", "from", "property")
    OPTIONAL: ClassVar[tuple[str, ...]] = ("first", "last")

    file: str
    source: str
    key: str
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    def write(self, model: Path, folder: Path) -> None:
        """Write the list. Raises ImportModelError when the model has no such property."""
        properties = read_signature(model, model.parent).metadata
        if self.key not in properties:
            raise ImportModelError(f"{self.source} has no metadata property '{self.key}'")
        lines = [*self.first, *properties[self.key].split("\n"), *self.last]
        text = json.dumps(lines, ensure_ascii=False, indent=0) + "\n"
        (folder / self.file).write_text(text, encoding="utf-8", newline="")


def read_property_file(fields: RecordReader, name: re.Pattern[str], names: Sequence[str]) -> PropertyFile:
    """One item of ``derived``."""
    return PropertyFile(
        file=fields.text("file", name),
        source=fields.choice("from", names),
        key=fields.text("property"),
        first=fields.texts("first"),
        last=fields.texts("last"),
    )

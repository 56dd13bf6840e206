"""The eye of a model that sees: how pictures are prepared for it, what its ports take, and how it is run.

An eye gives rows [pictures, rows, width], or the rows of all pictures as one matrix [rows, width]. The second kind sees
one picture in each run, so that the matrix holds the rows of that picture alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.preprocessor_config import FILE as PROCESSOR_FILE
from genai_pipeline.importers.shared.preprocessor_config import image_program
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.ports import INTEGERS
from genai_pipeline.importers.workflow.document import DOCUMENT, Document
from genai_pipeline.importers.workflow.programs import read_program

FEATURES: Final = "features"  # the value that the rows of pictures become
_BATCHED_RANK: Final = 3  # of rows: pictures, rows, width
_PATCH_RANK: Final = 2  # of patches side by side: patches, values
_GRID: Final = 3  # numbers of a picture's grid: frames, rows, columns
_HINT: Final = "write the package by hand: docs/image_programs.md"


@dataclass(frozen=True, slots=True)
class Eye:
    """The steps for a picture, what each port of the graph takes, and the output with its rows."""

    part: Part
    rows: str
    steps: list[dict[str, Any]]
    inputs: dict[str, str]

    @property
    def is_patched(self) -> bool:
        """Whether pictures of any size become patches."""
        return _patches(self.steps)

    @property
    def fixed_rows(self) -> int | None:
        """How many rows each picture becomes, where the graph fixes it."""
        shape = self.part.facts.outputs[self.rows].shape or ()
        return shape[1] if len(shape) == _BATCHED_RANK and isinstance(shape[1], int) else None

    def component(self) -> dict[str, Any]:
        """The entry under ``components``."""
        found: dict[str, Any] = {"model": self.part.facts.file}
        if len(self.part.facts.outputs[self.rows].shape or ()) != _BATCHED_RANK:
            found["batch"] = "none"
        ports = self.part.facts.inputs
        patched = [name for name in self.inputs if _is_patches(ports[name])]
        return {**found, **({"no_batch_axis": patched} if patched else {})}

    def stage(self, component: str) -> dict[str, Any]:
        """The stage that makes rows of each picture."""
        outputs = {self.rows: FEATURES}
        return {"id": "see", "run": component, "for_each": "images", "inputs": self.inputs, "outputs": outputs}


def read_eye(folder: SourceFolder, document: Document, part: Part, rows: str, report: ImportReport) -> Eye:
    """The eye; what pictures do not give, or nothing says, is refused."""
    steps = _steps(folder, document, report)
    inputs: dict[str, str] = {}
    for name, port in part.facts.inputs.items():
        if port.dtype.startswith("float") and "images.pixels" not in inputs.values():
            inputs[name] = "images.pixels"
        elif _is_grid(port) and _patches(steps):
            inputs[name] = "images.grid"
        else:
            report.refused(part.facts.file, name, "an input that no picture gives", _HINT)
    eye = Eye(part, rows, steps, inputs)
    pixels = next((part.facts.inputs[name] for name, value in inputs.items() if value == "images.pixels"), None)
    if pixels is not None and _is_patches(pixels) != eye.is_patched:
        takes, makes = ("patches", "pixels") if _is_patches(pixels) else ("pixels", "patches")
        report.refused(part.facts.file, pixels.name, f"takes {takes}, and the program makes {makes}", _HINT)
    return eye


def _patches(steps: list[dict[str, Any]]) -> bool:
    return any("patchify" in step for step in steps)


def _steps(folder: SourceFolder, document: Document, report: ImportReport) -> list[dict[str, Any]]:
    """The steps for a picture: the document's, else those of the processor beside it."""
    declared = read_program(document.root, "image", report)
    if declared is not None:
        return list(declared.steps)
    if folder.has(PROCESSOR_FILE):
        steps, tiles = image_program(folder.json(PROCESSOR_FILE), report)
        if tiles:
            report.refused(PROCESSOR_FILE, "", "cuts pictures into tiles, whose text no document says", _HINT)
        return steps
    why = f"missing, and there is no {PROCESSOR_FILE}: how pictures become pixels is not said"
    report.refused(DOCUMENT, "preprocessing.image", why, f"put the model's {PROCESSOR_FILE} into the folder")
    return []


def _is_patches(port: Port) -> bool:
    return port.dtype.startswith("float") and len(port.shape or ()) == _PATCH_RANK


def _is_grid(port: Port) -> bool:
    return port.dtype in INTEGERS and len(port.shape or ()) == _PATCH_RANK and (port.shape or ("",))[-1] == _GRID

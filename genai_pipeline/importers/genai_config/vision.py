"""``model.vision`` of genai_config.json: the graph that makes rows of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.image_program import FILE, ImageProgram, read_image_program
from genai_pipeline.importers.genai_config.ports import PartPorts
from genai_pipeline.importers.genai_config.session_options import read_session
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder

NAME: Final = "vision"
ROWS: Final = "features"  # the value that the rows of pictures become
PIXELS: Final = "images.pixels"
_DROPPED: Final[Mapping[str, str]] = {
    "spatial_merge_size": "the graph has what it needs of it",
    "patch_size": "the graph has what it needs of it",
    "window_size": "the graph has what it needs of it",
    "tokens_per_second": "it is for films",
    "num_visual_tokens": "it is for another type of model",
    "max_num_patches": "it is for another type of model",
}
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "adapter_filename": (
        "weights that are laid over the decoder's while there are pictures",
        "merge them into the decoder's graph",
    ),
    "pipeline": ("pictures go through a row of graphs with code between them", "export them as one graph"),
}
_PIXEL_RANK = 4
_BATCHED_RANK = 3  # of rows with an axis for pictures


@dataclass(frozen=True, slots=True)
class VisionPart:
    """The graph, how pictures are prepared for it, and the ports of pixels and rows."""

    model: str
    session: dict[str, Any]
    program: ImageProgram
    pixels: Port | None
    rows: Port | None

    def component(self) -> dict[str, Any]:
        """The entry under ``components``. Rows without an axis for pictures are those of one picture, run alone."""
        alone = self.rows is not None and len(self.rows.shape or ()) != _BATCHED_RANK
        return {"model": self.model, **({"batch": "none"} if alone else {}), **_given("session", self.session)}

    def stage(self) -> dict[str, Any]:
        """The stage that sees each picture."""
        inputs = {} if self.pixels is None else {self.pixels.name: PIXELS}
        outputs = {} if self.rows is None else {self.rows.name: ROWS}
        return {"id": "see", "run": NAME, "for_each": "images", "inputs": inputs, "outputs": outputs}


def read_vision(
    source: SourceFolder, model: ConfigNode, rows: int | None, session: dict[str, Any], report: ImportReport
) -> VisionPart:
    """Reads, maps and reports the whole part. ``rows``: of a picture; ``session``: what holds where it has none."""
    part = model.need(NAME)
    _report_rest(part, report)
    file = part.text("filename")
    signature = source.signature(file)
    report.mapped(part.file, part.at("filename"), f"components.{NAME}.model")
    ports = PartPorts(part, signature, report)
    pixels = ports.input("pixel_values", "pixel_values", PIXELS)
    found = ports.output("image_features", "image_features", f"see.{ROWS}")
    ports.refuse_rest()
    program = read_image_program(source, part.text("config_filename", FILE), report)
    if "config_filename" in part:
        report.mapped(part.file, part.at("config_filename"), "preprocess")
    for port, side, nominal in ((pixels, "inputs", "pixel_values"), (found, "outputs", "image_features")):
        if port is None:
            where = part.mapping(side).at(nominal)
            report.refused(part.file, where, "the graph has no port of this name", "name the port of its graph")
    if pixels is not None:
        _check_pixels(part, pixels, program, report)
    if found is not None:
        _check_rows(part, found, rows, report)
    own = read_session(part, report)
    return VisionPart(file, own if "session_options" in part else session, program, pixels, found)


def _check_pixels(part: ConfigNode, port: Port, program: ImageProgram, report: ImportReport) -> None:
    """The graph takes what the program makes: [pictures, 3, height, width]."""
    where = part.mapping("inputs").at("pixel_values")
    shape = port.shape
    if shape is None or program.size is None:
        return
    if len(shape) != _PIXEL_RANK:
        why = f"the port has {len(shape)} axes; a picture is [1, 3, height, width]"
        report.refused(part.file, where, why, "export the graph for pictures side by side")
        return
    made = (3, *program.size)
    if any(isinstance(size, int) and size != own for size, own in zip(shape[1:], made, strict=True)):
        shown = ", ".join(map(str, shape))
        report.refused(part.file, where, f"the port is [{shown}]; the steps make [1, {', '.join(map(str, made))}]")


def _check_rows(part: ConfigNode, port: Port, rows: int | None, report: ImportReport) -> None:
    shape = port.shape or ()
    fixed = shape[-2] if len(shape) > 1 and isinstance(shape[-2], int) else None
    if rows is not None and fixed is not None and fixed != rows:
        where = part.mapping("outputs").at("image_features")
        report.refused(part.file, where, f"gives {fixed} rows for a picture; prompts of this type have {rows}")


def _report_rest(part: ConfigNode, report: ImportReport) -> None:
    for key, why in _DROPPED.items():
        if key in part:
            report.dropped(part.file, part.at(key), why)
    for key, (why, hint) in _REFUSED.items():
        node = part.get(key)
        if node is not None and node.value not in ([], {}):
            report.refused(part.file, node.path, why, hint)


def _given(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {key: value} if value else {}

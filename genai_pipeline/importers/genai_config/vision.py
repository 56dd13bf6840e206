"""``model.vision`` of genai_config.json: the graph that makes rows of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.image_program import FILE, Ends, ImageProgram, read_image_program
from genai_pipeline.importers.genai_config.ports import PartPorts
from genai_pipeline.importers.genai_config.prompt_marks import PictureMarks
from genai_pipeline.importers.genai_config.session_options import read_session
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder

NAME: Final = "vision"
PIXELS: Final = "images.pixels"
_STAGE, _ROWS = "see", "features"
_DROPPED: Final[Mapping[str, str]] = {
    "spatial_merge_size": "the graph has what it needs of it",
    "patch_size": "the graph has what it needs of it",
    "window_size": "the graph has what it needs of it",
    "tokens_per_second": "it is for films",
    "num_visual_tokens": "it is for another type of model",
    "max_num_patches": "where pictures are filled up to it, patchify does that",
}
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "adapter_filename": (
        "weights that are laid over the decoder's while there are pictures",
        "merge them into the decoder's graph",
    ),
    "pipeline": ("pictures go through a row of graphs with code between them", "export them as one graph"),
}
_PIXEL_RANK = 4
_PATCH_RANK = 2  # of patches side by side: [patches, values]
_BATCHED_RANK = 3  # of rows with an axis for pictures


@dataclass(frozen=True, slots=True)
class VisionPart:
    """The graph, how pictures are prepared for it, and the ports of pixels and rows."""

    model: str
    session: dict[str, Any]
    program: ImageProgram
    pixels: Port | None
    rows: Port | None
    feeds: Mapping[str, str]  # other ports -> what of a picture they take
    before: tuple[Mapping[str, Any], ...]  # stages that make what they take

    @property
    def value(self) -> str:
        """The name of the rows of all pictures."""
        return f"{_STAGE}.{_ROWS}" if self.before else _ROWS

    def component(self) -> dict[str, Any]:
        """The entry under ``components``. Rows without an axis for pictures are those of one picture, run alone."""
        found: dict[str, Any] = {"model": self.model}
        if self.rows is not None and len(self.rows.shape or ()) != _BATCHED_RANK:
            found["batch"] = "none"
        if self.pixels is not None and len(self.pixels.shape or ()) == _PATCH_RANK:
            found["no_batch_axis"] = [self.pixels.name]
        return {**found, **({"session": self.session} if self.session else {})}

    def stage(self) -> dict[str, Any]:
        """The stage that sees each picture."""
        inputs = {**({} if self.pixels is None else {self.pixels.name: PIXELS}), **self.feeds}
        run = {"run": NAME, "inputs": inputs, "outputs": {} if self.rows is None else {self.rows.name: _ROWS}}
        if not self.before:
            return {"id": _STAGE, "run": NAME, "for_each": "images", **run}
        return {"id": _STAGE, "for_each": "images", "body": [*map(dict, self.before), run]}


def read_vision(
    source: SourceFolder, model: ConfigNode, marks: PictureMarks | None, session: dict[str, Any], report: ImportReport
) -> VisionPart:
    """Reads, maps and reports the whole part. ``marks`` of pictures in prompts; ``session``: where it has none."""
    part = model.need(NAME)
    _report_rest(part, report)
    file = part.text("filename")
    signature = source.signature(file)
    report.mapped(part.file, part.at("filename"), f"components.{NAME}.model")
    ports = PartPorts(part, signature, report)
    pixels = ports.input("pixel_values", "pixel_values", PIXELS)
    found = ports.output("image_features", "image_features", f"{_STAGE}.{_ROWS}")
    file_of_program = part.text("config_filename", FILE)
    program = read_image_program(source, file_of_program, report)
    feeds = {
        port.name: value
        for nominal, (default, value) in (marks.feeds if marks else {}).items()
        if (port := ports.input(nominal, default, value)) is not None
    }
    ports.refuse_rest()
    if "config_filename" in part:
        report.mapped(part.file, part.at("config_filename"), "preprocess")
    for port, side, nominal in ((pixels, "inputs", "pixel_values"), (found, "outputs", "image_features")):
        if port is None:
            where = part.mapping(side).at(nominal)
            report.refused(part.file, where, "the graph has no port of this name", "name the port of its graph")
    if marks is not None:
        _check_ends(part, file_of_program, program, marks, report)
        program = marks.prepare(part, program)
    if pixels is not None:
        _check_pixels(part, pixels, program, report)
    if found is not None:
        _check_rows(part, found, marks.rows if marks else None, report)
    own = read_session(part, report)
    session = own if "session_options" in part else session
    return VisionPart(file, session, program, pixels, found, feeds, marks.before if marks else ())


def _check_pixels(part: ConfigNode, port: Port, program: ImageProgram, report: ImportReport) -> None:
    """The graph takes what the program makes: [pictures, 3, height, width], or patches."""
    where = part.mapping("inputs").at("pixel_values")
    shape = port.shape
    if shape is None:
        return
    made: tuple[int | None, ...] = (3, *(program.size or (None, None)))
    rank, what = _PIXEL_RANK, "a picture is [1, 3, height, width]"
    if program.values:
        filled = (program.length,) if program.alone else ()
        made, rank = (*filled, program.values), _PATCH_RANK + len(filled)
        what = f"patches are {'[1, ' if program.alone else '['}patches, values]"
    if len(shape) != rank:
        why = f"the port has {len(shape)} axes; {what}"
        report.refused(part.file, where, why, "export the graph for what its steps make")
    elif any(isinstance(size, int) and size != own for size, own in zip(shape[1:], made, strict=True)):
        shown = ["any" if size is None else str(size) for size in made]
        why = f"the port is [{', '.join(map(str, shape))}]; the steps make [1, {', '.join(shown)}]"
        report.refused(part.file, where, why, "see to the steps and the graph")


def _check_ends(part: ConfigNode, file: str, program: ImageProgram, marks: PictureMarks, report: ImportReport) -> None:
    """The program ends in what tells how many rows a picture has, and counts them as the config does."""
    if program.ends is not marks.ends:
        why = f"the steps end in {program.ends.value}; prompts of this type need {marks.ends.value}"
        report.refused(file, "processor.transforms", why)
        return
    merge = part.integer("spatial_merge_size", 2, least=1)
    if program.ends is Ends.PATCHES and merge != program.merge:
        why = f"is {merge}; the steps merge {program.merge} x {program.merge} patches to a row"
        report.refused(part.file, part.at("spatial_merge_size"), why, "give the same number in both")
    block = marks.block(part)
    sides = program.size or (program.multiple or 1,)
    if program.ends is Ends.SIZED and any(side % block for side in sides):
        shown = ", ".join(map(str, sides))
        why = f"rows stand for {block} x {block} pixels; sides of {shown} are no multiples of that"
        report.refused(part.file, part.at("patch_size"), why, "give Resize the patches of the graph")


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

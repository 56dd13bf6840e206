"""Lines of a draft for pictures and sounds: the input with its placeholder, and the stages that make rows of an item.

How an item becomes numbers does not follow from a graph: the program, and what of it a port takes, are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from genai_pipeline.graph.signature import Dim, Port
from genai_pipeline.importers.package_writer import flow
from genai_pipeline.importers.structure.draft_parts import asked, todo
from genai_pipeline.importers.structure.joining import ModelParts, projected, row_output
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.ports import FLOATS
from genai_pipeline.importers.structure.texts import Texts

_PICTURE_RANK = 4  # batch, channels, height, width
_TILES_RANK = 5  # batch, tiles, channels, height, width
_MOST = 4  # items of a request
_PROGRAM = "picture"
# What programs publish for a port that is no picture.
_OTHERS = ("media.mask", "media.grid", "media.original")
_SOUNDS = ("media.pixels", "media.features", "media.samples")
_STEPS = ("features", "projected", "rows")  # what each stage makes; the last one makes ``rows``


@dataclass(frozen=True, slots=True)
class Pictures:
    """The steps of a program for pictures, and whether they cut them into tiles."""

    steps: tuple[dict[str, Any], ...]
    tiles: bool

    def fit(self, media: Part) -> bool:
        """Whether they make what a graph takes."""
        rank = _TILES_RANK if self.tiles else _PICTURE_RANK
        return len(_main_port(media).shape or ()) == rank


def program_lines(joined: ModelParts, pictures: Pictures | None) -> Iterator[str]:
    """The program for pictures, where there is one that fits."""
    if joined.media is None or pictures is None or not pictures.fit(joined.media):
        return
    yield "preprocess:"
    yield f"  {_PROGRAM}:"
    yield from (f"    - {flow(step)}" for step in pictures.steps)


def media_input_lines(joined: ModelParts, texts: Texts, pictures: Pictures | None) -> Iterator[str]:
    """The input that pictures or sounds come in by."""
    if joined.media is None:
        return
    port = _main_port(joined.media)
    fits = pictures is not None and pictures.fit(joined.media)
    modality = "image" if fits else todo(f"what does {port.name} take", "image", "audio", "video")
    program = _PROGRAM if fits else todo("the program that makes it of a file, declared under preprocess:")
    ask = "the token that stands for an item in the prompt"
    token = flow(texts.placeholder) if texts.placeholder is not None else todo(ask, *texts.placeholders)
    yield "  media:"
    yield f"    modality: {modality}"
    yield f"    program: {program}"
    yield f"    placeholder: {{token: {token}, {_slots(joined)}}}"
    yield "    required: false"
    yield f"    max_items: {_MOST}"


def media_stage_lines(joined: ModelParts) -> Iterator[str]:
    """The stages that make ``rows`` of each item, as wide as the embeddings."""
    if joined.media is None:
        return
    *names, _ = _STEPS[: 1 + (joined.projector is not None) + _has_tiles(joined.media)]
    made = [*names, "rows"]
    inputs = {name: _field(joined.media, port) for name, port in joined.media.facts.inputs.items()}
    outputs = {_media_output(joined).name: made[0]}
    yield f"  - {{id: see, run: media, for_each: media, {_ports(inputs, outputs)}}}"
    if joined.projector is not None:
        (taken,) = joined.projector.facts.inputs
        ports = _ports({taken: made[0]}, {_row_port(joined).name: made[1]})
        yield f"  - {{id: project, run: projector, for_each: {made[0]}, {ports}}}"
    if _has_tiles(joined.media):
        shape = f"with: {{shape: [-1, {_width(joined)}]}}, {_ports({'value': made[-2]}, {'result': 'rows'})}"
        yield f"  - {{id: join, op: reshape, for_each: {made[-2]}, {shape}}}  # of all tiles, one after another"


def _ports(inputs: dict[str, str], outputs: dict[str, str]) -> str:
    return f"inputs: {flow(inputs)}, outputs: {flow(outputs)}"


def _main_port(media: Part) -> Port:
    """The input that takes the item itself: the first one of numbers."""
    ports = list(media.facts.inputs.values())
    return next((port for port in ports if port.dtype in FLOATS), ports[0])


def _has_tiles(media: Part) -> bool:
    return len(_main_port(media).shape or ()) == _TILES_RANK


def _embedding_width(joined: ModelParts) -> Dim:
    assert joined.embed is not None
    return (joined.embed.rows[0].shape or ("",))[-1]


def _width(joined: ModelParts) -> str:
    width = _embedding_width(joined)
    return str(width) if isinstance(width, int) else todo("how wide is an embedding?")


def _media_output(joined: ModelParts) -> Port:
    """What the first graph gives to the projector, or to the decoder."""
    assert joined.media is not None
    if joined.projector is not None:
        found = projected(joined.media, joined.projector)
    else:
        found = row_output(joined.media, _embedding_width(joined))
    assert found is not None, "parts were joined by these ports"
    return found


def _row_port(joined: ModelParts) -> Port:
    assert joined.projector is not None
    found = row_output(joined.projector, _embedding_width(joined))
    assert found is not None, "parts were joined by these ports"
    return found


def _slots(joined: ModelParts) -> str:
    """How many slots of the prompt an item takes: the rows that a graph fixes; a picture in tiles has text around."""
    assert joined.media is not None
    if _has_tiles(joined.media):
        question = "the text of the slots, as the processor writes it around tiles: with features(n) for n slots"
        return f"expand: {todo(question)}"
    return f"count: {_count(joined)}"


def _count(joined: ModelParts) -> str:
    given = _media_output(joined)
    counted = given if joined.projector is None else _row_port(joined)
    size = _rows_of(counted)
    if not isinstance(size, int) and joined.projector is not None:
        (taken,) = joined.projector.facts.inputs.values()
        if size and size == _rows_of(taken):  # a row for each that it takes
            size = _rows_of(given)
    return str(size) if isinstance(size, int) else todo("how many rows does one item become? a number | media.tokens")


def _rows_of(port: Port) -> Dim:
    shape = port.shape or ()
    return shape[-2] if len(shape) > 1 else ""


def _field(media: Part, port: Port) -> str:
    """What a program publishes for a port: pixels where it has the rank of pictures; anything else is asked."""
    if port is not _main_port(media):
        return asked(f"what of an item does {port.name} take", *_OTHERS)
    if len(port.shape or ()) >= _PICTURE_RANK:
        return "media.pixels"
    return asked(f"what of an item does {port.name} take", *_SOUNDS)

"""``preprocessing`` of a document as our programs: what becomes of each transform, and what each output is bound to.

A document's program is a list of transforms and the values that graphs take from it. Transforms that our steps have no
word for are refused by name: pictures and sounds that are prepared in another way give other answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport

PREPROCESSING: Final = "preprocessing"
_HINT: Final = "write the program by hand: docs/image_programs.md, docs/audio_programs.md"
Step = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """Our steps, and what of the item each value is that graphs take: name of the value -> content."""

    steps: tuple[Step, ...] = ()
    contents: Mapping[str, str] = field(default_factory=dict)

    def content(self, *names: str) -> str | None:
        """The content of the first of these values that the program gives."""
        return next((self.contents[name] for name in names if name in self.contents), None)


def read_program(root: ConfigNode, modality: str, report: ImportReport) -> Program | None:
    """The program of ``image`` or ``audio``; None where the document has none."""
    declared = root.mapping(PREPROCESSING).get(modality)
    if declared is None:
        return None
    table = _IMAGE if modality == "image" else _AUDIO
    steps = [step for transform in _items(declared, "transforms") for step in _steps(transform, table, report)]
    contents = {output.text("name"): output.text("content", "") for output in _items(declared, "outputs")}
    report.mapped(declared.file, declared.path, "preprocess")
    return Program(tuple(steps), contents)


def _steps(
    transform: ConfigNode, table: Mapping[str, Callable[[ConfigNode], Step | None]], report: ImportReport
) -> Iterator[Step]:
    name = transform.text("op")
    if name.startswith("emit_"):  # what it gives is published by the other steps
        return
    make = table.get(name)
    if make is None:
        report.refused(transform.file, transform.path, f"the transform '{name}' has no counterpart", _HINT)
        return
    try:
        step = make(transform)
    except _ModeError as error:
        report.refused(transform.file, transform.path, f"the transform '{name}' {error}", _HINT)
        return
    if step is not None:
        yield step


class _ModeError(Exception):
    """A way of a transform that our step does not have."""


def _resize(node: ConfigNode) -> Step:
    mode = node.text("mode", "stretch")
    resample = node.text("interpolation", "bicubic")
    if mode in ("stretch", "fixed"):
        return {"resize": {"size": _size(node, "size"), "fit": "stretch", "resample": resample}}
    if mode == "shortest_edge":
        return {"resize": {"fit": mode, "edge": node.integer("size", least=1), "resample": resample}}
    if mode == "pixel_area":
        bounds = {key: node.integer(key, least=1) for key in ("min_pixels", "max_pixels")}
        multiple = node.integer("size_multiple", least=1)
        return {"resize": {"fit": "pixel_budget", "multiple": multiple, **bounds, "resample": resample}}
    raise _ModeError(f"has the mode '{mode}', which has no counterpart")


def _crop(node: ConfigNode) -> Step:
    return {"crop": {"size": _size(node, "size")}}


def _patchify(node: ConfigNode) -> Step:
    step = {
        "patch": node.integer("patch_size", least=1),
        "merge": node.integer("merge_size", 1, least=1),
        "temporal": node.integer("temporal_patch_size", 1, least=1),
    }
    order = node.text("channel_order", "channels_first")
    return {"patchify": step if order == "channels_first" else {**step, "order": order}}


def _rescale(node: ConfigNode) -> Step:
    return {"rescale": {"factor": node.number("scale")}}


def _normalize(node: ConfigNode) -> Step:
    return {"normalize": {key: node.need(key).value for key in ("mean", "std")}}


def _mono(node: ConfigNode) -> Step:
    if node.integer("channels", 1, least=1) != 1:
        raise _ModeError("keeps several channels")
    return {"mono": {}}


def _resample(node: ConfigNode) -> Step:
    return {"resample": {"rate": node.integer("sample_rate", least=1)}}


def _unit(node: ConfigNode) -> Step:
    epsilon = node.number("epsilon") if "epsilon" in node else 0.0
    return {"normalize": {"to": "unit", "epsilon": epsilon}}


def _pad(node: ConfigNode) -> Step | None:
    if node.text("mode", "right") != "right":
        raise _ModeError(f"pads in the mode '{node.text('mode')}'")
    if "target_length" not in node:
        return None  # of shorter rows in a batch: rows of several lengths do not share a run here
    value = node.number("pad_value") if "pad_value" in node else 0.0
    return {"pad": {"samples": node.integer("target_length", least=1), "value": value}}


def _size(node: ConfigNode, key: str) -> list[int]:
    """Height and width, of one number or two."""
    sides = node.integers(key)
    return list(sides) if len(sides) > 1 else [node.integer(key, least=1)] * 2


def _items(node: ConfigNode, key: str) -> Iterator[ConfigNode]:
    found = node.get(key)
    yield from found.items() if found is not None else ()


_IMAGE: Final[Mapping[str, Callable[[ConfigNode], Step | None]]] = {
    "decode": lambda _: {"decode": {"mode": "RGB"}},
    "decode_rgb": lambda _: {"decode": {"mode": "RGB"}},
    "convert_rgb": lambda _: None,
    "resize": _resize,
    "center_crop": _crop,
    "rescale": _rescale,
    "normalize": _normalize,
    "patchify": _patchify,
}
_AUDIO: Final[Mapping[str, Callable[[ConfigNode], Step | None]]] = {
    "decode": lambda _: {"decode": {}},
    "downmix": _mono,
    "resample": _resample,
    "zero_mean_unit_variance": _unit,
    "pad": _pad,
}

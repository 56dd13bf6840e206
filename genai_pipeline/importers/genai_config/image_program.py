"""``processor_config.json``: the steps from a picture to pixels, as a preprocess program.

The steps are those of onnxruntime-extensions. What each does there was seen in what onnxruntime-genai 0.18 computes:
``Resize`` gives exactly its height and width whatever ``keep_aspect_ratio`` says, ``ConvertRGB`` swaps the channels
of what ``DecodeImage`` gave, which drops transparency and scales samples of 16 bits; all but ``Rescale``,
``Normalize`` and ``Permute3D`` take samples of 8 bits only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.problems import nearest

FILE: Final = "processor_config.json"
PROGRAM: Final = "picture"
_TO: Final = f"preprocess.{PROGRAM}"
_FILTERS: Final[Mapping[str, str]] = {
    "NEAREST": "nearest",
    "LINEAR": "bilinear",
    "CUBIC": "bicubic",
    "LANCZOS": "lanczos",
}
_SIDE, _CROPPED = 256, 224  # pixels: sides that the steps Resize and CenterCrop have when the file gives none
_MEAN: Final = [0.48145466, 0.4578275, 0.40821073]
_STD: Final = [0.26862954, 0.26130258, 0.27577711]
_CHANNELS_FIRST: Final = [2, 0, 1]
_CHANNELS: Final = 3
_RATIO: Final = 200.0  # by which the sides of a picture may differ
# What a step takes: bytes, float32, float32 with channels first; and what only ends a program.
_SAMPLES, _NUMBERS, _LAID_OUT, _SIZED, _PATCHES = range(5)
_HINT: Final = "write the package by hand: docs/image_programs.md"
_WHY: Final[Mapping[str, str]] = {
    "Phi3ImageTransform": "cuts pictures into tiles with marks between them in a way of its own",
    "Phi4VisionProcessor": "cuts pictures into tiles with masks in a way of its own",
    "Phi4VisionDynamicPreprocess": "cuts pictures into tiles with masks in a way of its own",
    "Llama3ImageTransform": "lays tiles on a canvas and says which there are",
    "Gemma4ImageTransform": "makes patches with their positions in a way of its own",
}


class Ends(Enum):
    """What a program ends in: pixels of one size, pixels of the picture's own size, or patches."""

    PIXELS = "pixels of one size (Resize, ..., Permute3D)"
    SIZED = "pixels and their size (Resize with smart_resize, ..., Permute3D, PixtralImageSizes)"
    PATCHES = "patches (Resize with smart_resize, ..., PatchImage)"


@dataclass(frozen=True, slots=True)
class ImageProgram:
    """Our steps and what they end in; ``size``: height and width of the pixels, where it is one for all pictures.

    ``multiple``: of which sides of other pictures are multiples; ``merge``: patches along a side that make one row;
    ``values`` of a patch. Patches of ``alone`` have an axis for pictures, and are filled up to ``length``.
    """

    steps: list[dict[str, Any]]
    ends: Ends
    size: tuple[int, int] | None = None
    multiple: int | None = None
    merge: int = 1
    values: int = 0
    alone: bool = False
    length: int | None = None

    def as_patches(self, patch: int, length: int | None) -> ImageProgram:
        """The program with its pixels cut into patches, channels last, line by line."""
        *steps, last = self.steps
        swapped = "layout" in last
        step: dict[str, Any] = {"patch": patch, "order": "channels_last"}
        step |= ({"channels": "reverse"} if swapped else {}) | ({} if length is None else {"length": length})
        steps = [*(steps if swapped else self.steps), {"patchify": step}]
        return replace(self, steps=steps, values=_CHANNELS * patch * patch, alone=True, length=length)


@dataclass(slots=True)
class _Reader:
    """Goes through the steps: what has been made so far, and of which form it is."""

    file: str
    report: ImportReport
    form: int = _SAMPLES
    swapped: bool = False  # whether the first channel is blue
    size: tuple[int, int] | None = None
    multiple: int | None = None
    merge: int = 1
    values: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)

    def take(self, step: ConfigNode) -> None:
        """Adds what stands for a step of theirs; refuses it by name where nothing does."""
        operation = step.need("operation")
        kind, attrs = operation.text("type"), operation.mapping("attrs")
        known = _KNOWN.get(kind)
        if known is None:
            why = f"the step {kind} {_WHY.get(kind, 'is not known')}"
            self.report.refused(self.file, step.path, why, nearest(kind, _KNOWN) or _HINT)
            return
        if self.form != known.takes:
            wanted = ("samples of 8 bits", "numbers behind Rescale", "numbers behind Permute3D")[known.takes]
            why = f"the step {kind} takes {wanted}; where it stands it reads memory as what it is not"
            self.report.refused(self.file, step.path, why, "order: DecodeImage, sizes, Rescale, Normalize, Permute3D")
        for name in (name for name in attrs.keys if name not in known.attrs):
            why = f"the step {kind} has no such attribute"
            self.report.refused(self.file, attrs.at(name), why, nearest(name, known.attrs))
        known.add(self, attrs)
        self.form = known.gives
        self.report.mapped(self.file, step.path, f"{_TO}: {known.to}")


@dataclass(frozen=True, slots=True)
class _Known:
    takes: int
    gives: int
    attrs: tuple[str, ...]
    to: str
    add: Callable[[_Reader, ConfigNode], None]


def read_image_program(source: SourceFolder, file: str, report: ImportReport) -> ImageProgram:
    """Reads and reports the whole file; every step that ours cannot do as it is done there is refused."""
    source.need(file, "it says how pictures become pixels")
    config = source.json(file)
    reader = _Reader(file, report)
    processor = config.need("processor")
    transforms = processor.need("transforms").checked(isinstance(processor.value["transforms"], list), "a list")
    for step in transforms.items():
        reader.take(step)
    report.mapped(file, transforms.path, _TO)
    for leaf in report.uncovered(config):
        report.dropped(file, leaf.path, "a name, or nothing that onnxruntime-genai reads")
    ends = {_SIZED: Ends.SIZED, _PATCHES: Ends.PATCHES}.get(reader.form, Ends.PIXELS)
    if reader.form < _LAID_OUT:
        hint = "end with Rescale and then Permute3D with dims [2, 0, 1], or PatchImage"
        report.refused(file, transforms.path, "the steps do not end in numbers with channels first, or patches", hint)
    if ends is Ends.PIXELS and reader.size is None:
        why = "pictures keep sizes of their own; several of one request would be filled up to the largest there"
        report.refused(file, transforms.path, why, "add a Resize or a CenterCrop")
    if reader.swapped and ends is not Ends.PATCHES:
        reader.steps.append({"layout": {"channels": "reverse"}})
    return ImageProgram(reader.steps, ends, reader.size, reader.multiple, reader.merge, reader.values)


def _decode(reader: _Reader, attrs: ConfigNode) -> None:
    colours = attrs.choice("color_space", ("RGB", "BGR"), "RGB")
    reader.swapped = colours == "BGR"
    reader.steps.append({"decode": {"mode": "RGB", "alpha": "drop", "deep": "scale"}})


def _convert(reader: _Reader, _: ConfigNode) -> None:
    reader.swapped = not reader.swapped


def _resize(reader: _Reader, attrs: ConfigNode) -> None:
    height, width = _size(attrs, _SIDE)
    resample = {"resample": _FILTERS[attrs.choice("interpolation", tuple(_FILTERS), "CUBIC")], "passes": "rows_first"}
    attrs.integer("keep_aspect_ratio", 1)
    if not attrs.integer("smart_resize", 0):
        reader.size, reader.multiple = (height, width), None
        reader.steps.append({"resize": {"size": [height, width], "fit": "stretch", **resample}})
        return
    reader.size, reader.multiple = None, _numbers(attrs, patch_size=14) * _numbers(attrs, merge_size=2)
    bounds = {"min_pixels": _numbers(attrs, min_pixels=3136), "max_pixels": _numbers(attrs, max_pixels=12845056)}
    fit = {"fit": "whole_pixel_budget", "multiple": reader.multiple, **bounds, "max_ratio": _RATIO}
    reader.steps.append({"resize": {**fit, **resample}})


def _crop(reader: _Reader, attrs: ConfigNode) -> None:
    reader.size = _size(attrs, _CROPPED)
    reader.steps.append({"crop": {"size": list(reader.size)}})


def _rescale(reader: _Reader, attrs: ConfigNode) -> None:
    factor = attrs.number("rescale_factor") if "rescale_factor" in attrs else 1 / 255
    reader.steps.append({"rescale": {"factor": factor}})


def _normalize(reader: _Reader, attrs: ConfigNode) -> None:
    """Means stand in the order of the channels as they lie, ours in that of the decoded picture."""
    if attrs.integer("qwen2_5_vl", 0):
        reader.swapped = not reader.swapped
    mean, std = _channels(attrs, "mean", _MEAN), _channels(attrs, "std", _STD)
    if reader.swapped:
        mean, std = mean[::-1], std[::-1]
    reader.steps.append({"normalize": {"mean": mean, "std": std}})


def _channels(attrs: ConfigNode, key: str, default: list[float]) -> list[float]:
    """A number for each channel."""
    node = attrs.get(key)
    if node is None:
        return default
    numbers = node.value if isinstance(node.value, list) else []
    fits = len(numbers) == _CHANNELS and all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
    return list(node.checked(fits, f"a list of {_CHANNELS} numbers").value)


def _permute(reader: _Reader, attrs: ConfigNode) -> None:
    dims = attrs.get("dims")
    if dims is None or dims.value != _CHANNELS_FIRST:
        shown = "none, which means [1, 2, 0]" if dims is None else dims.shown
        why = f"is {shown}: only {_CHANNELS_FIRST} puts channels first"
        reader.report.refused(reader.file, attrs.at("dims"), why, f"set it to {_CHANNELS_FIRST}")


def _patch(reader: _Reader, attrs: ConfigNode) -> None:
    patch, temporal = _numbers(attrs, patch_size=14), _numbers(attrs, temporal_patch_size=2)
    reader.merge = _numbers(attrs, merge_size=2)
    reader.values = _CHANNELS * patch * patch * temporal
    side = patch * reader.merge
    if reader.multiple is None or reader.multiple % side:
        why = f"cuts patches of {side} pixels, and the sides of pictures are no multiples of that"
        reader.report.refused(reader.file, attrs.path, why, "give Resize smart_resize 1 and the same patches")
    step = {"patch": patch, "merge": reader.merge, "temporal": temporal}
    reader.steps.append({"patchify": {**step, **({"channels": "reverse"} if reader.swapped else {})}})


def _numbers(attrs: ConfigNode, **default: int) -> int:
    """An attribute of at least 1 by its name, and what it is where the file does not give it."""
    ((name, value),) = default.items()
    return attrs.integer(name, value, least=1)


def _size(attrs: ConfigNode, default: int) -> tuple[int, int]:
    return attrs.integer("height", default, least=1), attrs.integer("width", default, least=1)


_SIZE_ATTRS: Final = ("height", "width")
_BUDGET_ATTRS: Final = ("smart_resize", "min_pixels", "max_pixels", "patch_size", "merge_size", "temporal_patch_size")
_RESIZE_ATTRS: Final = (*_SIZE_ATTRS, "interpolation", "keep_aspect_ratio", *_BUDGET_ATTRS)
_KNOWN: Final[Mapping[str, _Known]] = {
    "DecodeImage": _Known(_SAMPLES, _SAMPLES, ("color_space",), "decode", _decode),
    "ConvertRGB": _Known(_SAMPLES, _SAMPLES, (), "layout: channels, which it swaps", _convert),
    "Resize": _Known(_SAMPLES, _SAMPLES, _RESIZE_ATTRS, "resize: stretched, or by a budget of pixels", _resize),
    "CenterCrop": _Known(_SAMPLES, _SAMPLES, _SIZE_ATTRS, "crop", _crop),
    "Rescale": _Known(_SAMPLES, _NUMBERS, ("rescale_factor",), "rescale", _rescale),
    "Normalize": _Known(_NUMBERS, _NUMBERS, ("mean", "std", "qwen2_5_vl"), "normalize", _normalize),
    "Permute3D": _Known(_NUMBERS, _LAID_OUT, ("dims",), "channels first, as all pixels here", _permute),
    "PatchImage": _Known(_NUMBERS, _PATCHES, ("patch_size", "merge_size", "temporal_patch_size"), "patchify", _patch),
    "PixtralImageSizes": _Known(_LAID_OUT, _SIZED, (), "images.original and images.scale", lambda reader, attrs: None),
}

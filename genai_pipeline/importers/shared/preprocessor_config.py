"""preprocessor_config.json of an image processor as an image program: CLIP, SigLIP and ViT, Idefics3 and SmolVLM.

Sizes of a processor that takes one picture as it is, or that cuts it into tiles; what else would change the pixels is
refused by its key.
"""

from __future__ import annotations

from typing import Any

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport

FILE = "preprocessor_config.json"
TYPES = ("image_processor_type", "feature_extractor_type")
_ONE = (
    "CLIPImageProcessor",
    "CLIPFeatureExtractor",
    "SiglipImageProcessor",
    "ViTImageProcessor",
    "ViTFeatureExtractor",
)
_TILES = ("Idefics3ImageProcessor", "SmolVLMImageProcessor")
_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_READ = {"do_resize", "size", "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize"}
_READ |= {"image_mean", "image_std", "max_image_size", "do_image_splitting", *TYPES}
_RGB = "do_convert_rgb"


def image_program(config: ConfigNode, report: ImportReport) -> tuple[list[dict[str, Any]], bool]:
    """The program's steps, and whether it cuts pictures into tiles; every key gets its row."""
    kind = _kind(config)
    tiles = kind in _TILES
    for key in config.keys:
        _row(config, key, tiles, report)
    if kind not in (*_ONE, *_TILES):
        known = ", ".join((*_ONE, *_TILES))
        report.refused(FILE, TYPES[0], f"'{kind or 'none'}' is no processor that is known here; known are {known}")
        return [], False
    sizes = _tiled(config, report) if tiles else _plain(config, kind, report)
    padding = [{"pad": {"size": _square(config, "max_image_size", report)}}] if tiles else []
    return [{"decode": {"mode": "RGB"}}, *sizes, *_numbers(config), *padding], tiles


def _kind(config: ConfigNode) -> str:
    name = next((config.text(key) for key in TYPES if key in config), "")
    return name.removesuffix("Fast").removesuffix("Pil")


def _row(config: ConfigNode, key: str, tiles: bool, report: ImportReport) -> None:
    value = config.value[key]
    if key in _READ:
        report.mapped(FILE, key, "preprocess.picture")
    elif key == _RGB:
        report.mapped(FILE, key, "preprocess.picture: decode")
    elif key.startswith("do_") and value and not (tiles and key == "do_pad"):
        report.refused(FILE, key, "a step that the program has no word for")
    else:
        report.dropped(FILE, key, "it changes no pixel")


def _plain(config: ConfigNode, kind: str, report: ImportReport) -> list[dict[str, Any]]:
    """One picture: resized, and its middle cut out where the processor does that."""
    steps: list[dict[str, Any]] = []
    if config.boolean("do_resize", True):
        size = config.need("size")
        crops = kind.startswith("CLIP")  # which reads one number as the shorter edge, others as a square
        if isinstance(size.value, int):
            size = ConfigNode(FILE, "size", {"shortest_edge": size.value} if crops else _both(size.value))
        resample = _filter(config, "bilinear" if kind.startswith("ViT") else "bicubic")
        if "shortest_edge" in size:
            fit: dict[str, Any] = {"fit": "shortest_edge", "edge": size.integer("shortest_edge", least=1)}
        elif "height" in size and "width" in size:
            fit = {"size": [size.integer("height", least=1), size.integer("width", least=1)], "fit": "stretch"}
        else:
            report.refused(FILE, "size", f"{size.shown}: known are shortest_edge, and height with width")
            fit = {}
        steps.append({"resize": {**fit, "resample": resample}})
    if config.boolean("do_center_crop", False):
        steps.append({"crop": {"size": _square(config, "crop_size", report)}})
    return steps


def _tiled(config: ConfigNode, report: ImportReport) -> list[dict[str, Any]]:
    """Enlarged to whole tiles; the whole picture comes last, as large as a tile."""
    if not config.boolean("do_image_splitting", True):
        report.refused(FILE, "do_image_splitting", "is off; pictures are cut into tiles here")
    tile = _square(config, "max_image_size", report)
    edge = config.mapping("size").integer("longest_edge", least=1)
    resample = _filter(config, "lanczos")
    return [
        {"resize": {"fit": "longest_edge", "edge": edge, "multiple": 2, "round": "up", "resample": resample}},
        {"resize": {"fit": "multiple", "multiple": tile[0], "resample": resample}},
        {"tile": {"size": tile, "single": "keep", "thumbnail": "last", "resample": resample}},
    ]


def _numbers(config: ConfigNode) -> list[dict[str, Any]]:
    """Samples of 8 bits as the numbers that the encoder takes."""
    scaled = config.boolean("do_rescale", True)
    factor = config.number("rescale_factor") if "rescale_factor" in config else 1 / 255
    steps: list[dict[str, Any]] = [{"rescale": {"factor": factor if scaled else 1.0}}]
    if config.boolean("do_normalize", True):
        steps.append({"normalize": {"mean": config.need("image_mean").value, "std": config.need("image_std").value}})
    return steps


def _filter(config: ConfigNode, default: str) -> str:
    if "resample" not in config:
        return default
    number = config.integer("resample")
    return _FILTERS.get(number) or str(config.need("resample").checked(False, "0 to 5, as Pillow numbers filters"))


def _square(config: ConfigNode, key: str, report: ImportReport) -> list[int]:
    """Height and width from any of the forms in which sizes are written."""
    node = config.need(key)
    if isinstance(node.value, int):
        return [node.value, node.value]
    if "longest_edge" in node:
        return [node.integer("longest_edge", least=1)] * 2
    if "height" not in node or "width" not in node:
        report.refused(FILE, key, f"{node.shown}: known are a number, longest_edge, and height with width")
        return [1, 1]
    return [node.integer("height", least=1), node.integer("width", least=1)]


def _both(edge: int) -> dict[str, int]:
    return {"height": edge, "width": edge}

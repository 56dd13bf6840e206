"""How many rows of embeddings a picture becomes, where the configs of a model say it and its graph does not."""

from __future__ import annotations

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport

PROCESSOR = "processor_config.json"
LENGTH_KEYS = ("image_seq_len", "image_seq_length", "num_image_tokens")
_TO = "inputs.images.placeholder"


def said_rows(config: ConfigNode, processor: ConfigNode, report: ImportReport) -> int | None:
    """Rows of a picture, or of a tile: a number of its own, else the patches of the encoder; None: nothing says it."""
    for file in (processor, config):
        for key in LENGTH_KEYS:
            if key in file:
                report.mapped(file.file, key, _TO)
                return file.integer(key, least=1)
    vision = config.mapping("vision_config")
    if "image_size" not in vision or "patch_size" not in vision:
        return None
    side = vision.integer("image_size", least=1) // vision.integer("patch_size", least=1)
    extra = processor.integer("num_additional_image_tokens", 0)
    cut = processor.text("vision_feature_select_strategy", "full") == "default"
    report.mapped(config.file, "vision_config.image_size", f"{_TO}.count")
    return side * side + extra - int(cut)

"""Vision and language: an encoder per picture, its rows put in place of the prompt's image tokens, then a decoder."""

from __future__ import annotations

from typing import Any

from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.importers.optimum.decoder import answer_stage, closing_fields, decoder_parts, main_role
from genai_pipeline.importers.optimum.layout import EMBED, VISION, Layout
from genai_pipeline.importers.optimum.source import Source
from genai_pipeline.importers.picture_rows import LENGTH_KEYS, PROCESSOR, said_rows
from genai_pipeline.importers.shared.preprocessor_config import FILE, image_program

COMMENT = (
    "Imported from a vision-language model that transformers.js laid out: see each picture, then write the answer."
)
_TOKEN_KEYS = ("image_token_index", "image_token_id")
_FEATURES = ("image_features", "image_embeds")
_PORTS = {"pixel_values": "images.pixels", "pixel_attention_mask": "images.mask"}
_AROUND, _WHOLE = "<fake_token_around_image>", "<global-img>"
_MOST = 8  # pictures of a request


def is_vision_language(layout: Layout, signatures: dict[str, GraphSignature]) -> bool:
    """Whether pictures and tokens become embeddings of one decoder."""
    decoder = main_role(layout)
    if decoder is None or not layout.has(EMBED, VISION):
        return False
    return "inputs_embeds" in signatures[decoder].inputs and "pixel_values" in signatures[VISION].inputs


def vision_fields(source: Source) -> dict[str, Any]:
    """The fields of the metadata of a vision-language model."""
    source.folder.need(FILE, "it says how pictures become pixels")
    program, tiles = image_program(source.folder.json(FILE), source.report)
    component, run = decoder_parts(source, {"inputs_embeds": "embeds"})
    see, features = _see(source)
    placeholder = _placeholder(source, tiles)
    pictures = {"modality": "image", "program": "picture", "placeholder": placeholder, "max_items": _MOST}
    body = [_embed(source), _splice(features), run]
    return {
        "inputs": {"prompt": {"modality": "text"}, "images": {**pictures, "required": False}},
        "outputs": {"text": {"modality": "text", "value": "generate.text"}},
        "tokenizer": source.tokens(),
        "preprocess": {"picture": program},
        "components": {
            "vision": {"model": source.layout.graphs[VISION]},
            "embed": {"model": source.layout.graphs[EMBED]},
            "decoder": component,
        },
        "stages": [*see, answer_stage(source, body)],
        **closing_fields(source),
    }


def _see(source: Source) -> tuple[list[dict[str, Any]], str]:
    """The stages that make rows of each picture, and the name of those rows."""
    file = source.layout.graphs[VISION]
    graph = source.folder.signature(file)
    for name in (name for name in graph.inputs if name not in _PORTS):
        source.report.refused(file, name, "an input that no image program here publishes")
    output = next((name for name in _FEATURES if name in graph.outputs), next(iter(graph.outputs)))
    source.report.mapped(file, "", "components.vision")
    run = {
        "id": "see",
        "run": "vision",
        "for_each": "images",
        "inputs": {name: _PORTS[name] for name in graph.inputs if name in _PORTS},
        "outputs": {output: "features"},
    }
    if len(graph.inputs["pixel_values"].shape or ()) == 4:
        return [run], "features"
    shape = graph.outputs[output].shape or ()
    width = shape[-1] if shape and isinstance(shape[-1], int) else source.text.integer("hidden_size", least=1)
    rows = {"op": "reshape", "with": {"shape": [-1, width]}, "inputs": {"value": "features"}}
    return [run, {"id": "join", "for_each": "features", **rows, "outputs": {"result": "rows"}}], "rows"


def _embed(source: Source) -> dict[str, Any]:
    file = source.layout.graphs[EMBED]
    graph = source.folder.signature(file)
    for name in (name for name in graph.inputs if name != "input_ids"):
        source.report.refused(file, name, "an input that nothing here gives")
    source.report.mapped(file, "", "components.embed")
    return {"run": "embed", "inputs": {"input_ids": "loop.tokens"}, "outputs": {next(iter(graph.outputs)): "plain"}}


def _splice(features: str) -> dict[str, Any]:
    inputs = {"into": "plain", "features": features, "at": "images.positions"}
    return {"op": "splice", "inputs": inputs, "outputs": {"result": "embeds"}}


def _placeholder(source: Source, tiles: bool) -> dict[str, Any]:
    """The token of a picture's slots, and how many there are, or the text around those of tiles."""
    key = next((key for key in _TOKEN_KEYS if key in source.config), "")
    if not key:
        source.report.refused("config.json", _TOKEN_KEYS[0], "missing: which token stands for a picture is not said")
        return {"token": "<image>", "count": 1}
    source.report.mapped("config.json", key, "inputs.images.placeholder.token")
    number = source.config.integer(key)
    words = source.words()
    if number not in words:
        source.report.refused("config.json", key, f"{number} is none of the tokenizer's tokens")
    count = _count(source)
    return {"token": words.get(number, "<image>"), **({"expand": tiles_text(count)} if tiles else {"count": count})}


def _count(source: Source) -> int:
    """Rows of a picture, or of a tile: what the graph fixes, else what the processor says."""
    graph = source.folder.signature(source.layout.graphs[VISION])
    output = next((graph.outputs[name] for name in _FEATURES if name in graph.outputs), None)
    if output is not None and output.shape is not None and len(output.shape) == 3 and isinstance(output.shape[1], int):
        return output.shape[1]
    said = said_rows(source.config, source.folder.optional_json(PROCESSOR), source.report)
    if said is not None:
        return said
    source.report.refused(PROCESSOR, LENGTH_KEYS[0], "missing: how many tokens a picture takes is not said")
    return 1


def tiles_text(count: int) -> str:
    """What stands around the slots of tiles and of the whole picture, as the processor writes it."""
    slots = f"{{{{ features({count}) }}}}"
    tile = f"{_AROUND}<row_{{{{ row + 1 }}}}_col_{{{{ col + 1 }}}}>{slots}"
    line = "{% for col in range(images.tiles[1]) %}" + tile + "{% endfor %}{{ '\\n' }}"
    rows = "{% for row in range(images.tiles[0]) %}" + line + "{% endfor %}"
    return rows + "{% if images.tiles[0] %}{{ '\\n' }}{% endif %}" + f"{_AROUND}{_WHOLE}{slots}{_AROUND}"

"""Models that see: each picture becomes rows, which are put where the prompt tells of it, in front of a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.decoder import read_decoder
from genai_pipeline.importers.genai_config.embed_tokens import EMBEDS, EmbeddingPart, decoder_stage, read_embedding
from genai_pipeline.importers.genai_config.hearing import refuse_speech
from genai_pipeline.importers.genai_config.image_program import PROGRAM
from genai_pipeline.importers.genai_config.package_parts import (
    PackageParts,
    family,
    read_settings,
    report_sharing,
    token_fields,
)
from genai_pipeline.importers.genai_config.prompt_marks import read_marks, with_slots
from genai_pipeline.importers.genai_config.vision import NAME as VISION
from genai_pipeline.importers.genai_config.vision import read_vision
from genai_pipeline.importers.mixers import WORDS, stages_without_slots
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.decode_stage import decode_stage
from genai_pipeline.importers.shared.metadata_document import document
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.tokenizer_files import read_tokenizer_files

_COMMENT: Final = (
    "Imported from a folder made for onnxruntime-genai; import_report.json says what became of each key.",
    "The embedding graph is given no rows of pictures and no token of theirs; splice puts the rows in their places.",
)
_MOST: Final = 8  # pictures of a request
_PLAIN: Final = "plain"  # the value of embeddings without pictures


def sees_or_hears(model: ConfigNode) -> bool:
    """Whether a graph for pictures or sounds is named beside a decoder."""
    return any("filename" in model.mapping(part) or "pipeline" in model.mapping(part) for part in (VISION, "speech"))


def seeing_package(source: SourceFolder, config: ConfigNode, name: str, report: ImportReport) -> PackageParts:
    """The package of a model that sees; what cannot be mapped is refused in the report."""
    model = config.need("model")
    tokenizer = read_tokenizer_files(source, report)
    decoder = read_decoder(source, model.need("decoder"), report)
    embedding = read_embedding(source, model, decoder, report)
    marks = read_marks(source, model, report)
    refuse_speech(source, model, report)
    if VISION not in model:
        raise report.error(str(source.path))  # it only hears: that was refused
    session = dict(decoder.component.session)
    vision = read_vision(source, model, marks[0] if marks else None, session, report)
    settings = read_settings(config, model, report)
    report_sharing(config, decoder, report)
    if embedding is None or "images" not in embedding.rows:
        where = model.mapping("embedding").mapping("inputs").at("image_features")
        report.refused(model.file, where, "no graph takes the rows of pictures", "name the port of its graph")
    if marks is None or embedding is None:
        return PackageParts("", tokenizer, ())  # refused: nothing is written
    tokenizer = with_slots(tokenizer, marks[0], report)
    placeholder = marks[0].placeholder(model.need(VISION))
    pictures = {"modality": "image", "program": PROGRAM, "placeholder": placeholder, "max_items": _MOST}
    fields = {
        "name": name,
        "summary": f"{family(model, report)}, from genai_config.json",
        "inputs": {"prompt": {"modality": "text"}, "images": {**pictures, "required": False}},
        "outputs": {"text": {"modality": "text", "value": "generate.text"}},
        "tokenizer": token_fields(model, tokenizer, report),
        "preprocess": {PROGRAM: vision.program.steps},
        "data": embedding.data(),
        "components": {
            VISION: vision.component(),
            "embedding": embedding.component(),
            "decoder": decoder.component.fields(),
        },
        "stages": [
            vision.stage(),
            decode_stage([*_placed(embedding, {"images": marks[1]}, {"images": vision.value}), decoder_stage(decoder)]),
        ],
        "generation": {"defaults": dict(settings.defaults)} if settings.defaults else {},
        "limits": {"context_length": settings.most_tokens},
    }
    graphs = (vision.model, embedding.model, decoder.component.model)
    return PackageParts(document("\n# ".join(_COMMENT), fields), tokenizer, graphs, dict(embedding.files()))


def _placed(embedding: EmbeddingPart, slots: Mapping[str, int], rows: Mapping[str, str]) -> list[dict[str, Any]]:
    """Stages that give ``embeds``: of the tokens, with the rows of each input in its slots."""
    stages = [*stages_without_slots(slots), embedding.stage(WORDS, _PLAIN)]
    value = _PLAIN
    for index, (name, features) in enumerate(rows.items(), start=1):
        result = EMBEDS if index == len(rows) else f"{name}_placed"
        inputs = {"into": value, "features": features, "at": f"{name}.positions"}
        stages.append({"op": "splice", "inputs": inputs, "outputs": {"result": result}})
        value = result
    return stages

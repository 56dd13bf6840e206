"""Text models: a decoder, alone or behind a graph that turns tokens into embeddings."""

from __future__ import annotations

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.decoder import read_decoder
from genai_pipeline.importers.genai_config.embed_tokens import EMBEDS, NAME, decoder_stage, read_embedding
from genai_pipeline.importers.genai_config.metadata_text import ComponentText, head_lines, tail_lines, text_decoder
from genai_pipeline.importers.genai_config.package_parts import (
    PackageParts,
    family,
    read_settings,
    report_sharing,
    token_fields,
)
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.tokenizer_files import read_tokenizer_files


def decoder_package(source: SourceFolder, config: ConfigNode, name: str, report: ImportReport) -> PackageParts:
    """The package of a text model; what cannot be mapped is refused in the report."""
    model = config.need("model")
    tokenizer = read_tokenizer_files(source, report)
    decoder = read_decoder(source, model.need("decoder"), report)
    embedding = read_embedding(source, model, decoder, report)
    settings = read_settings(config, model, report)
    report_sharing(config, decoder, report)
    before = [] if embedding is None else [ComponentText(NAME, embedding.model, (), embedding.session)]
    components = [*before, decoder.component]
    body = [] if embedding is None else [embedding.stage("loop.tokens", EMBEDS)]
    text = text_decoder(
        head_lines(name, f"{family(model, report)}, from genai_config.json"),
        token_fields(model, tokenizer, report),
        components,
        [*body, decoder_stage(decoder)],
        "logits",
        tail_lines(settings.defaults, settings.most_tokens),
    )
    return PackageParts(text, tokenizer, tuple(component.model for component in components))

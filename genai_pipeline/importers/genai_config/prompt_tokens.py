"""The start of answers as the tokenizer's added tokens and genai_config.json say it."""

from __future__ import annotations

from collections.abc import Iterator

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.prompt_tokens import START, PromptTokens
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.tokenizer_files import TOKENIZER


def read_prompt_tokens(source: SourceFolder, model: ConfigNode, sound: bool, report: ImportReport) -> PromptTokens:
    """What the tokenizer and the config say of it; refused in the report when no start is known."""
    definition = source.json(TOKENIZER)
    tokens = {item.integer("id"): item.text("content") for item in _added(definition)}
    key = "decoder_start_token_id"
    if sound:
        if key in model:
            report.dropped(model.file, model.at(key), f"an answer starts behind {START}, which the tokenizer has")
        if START not in tokens.values():
            report.refused(TOKENIZER, "added_tokens", f"has no {START}: what an answer starts with is not known")
        return PromptTokens(tokens, None)
    if key not in model:
        report.refused(model.file, model.at(key), "is missing: what an answer starts with is not known", f"give {key}")
        return PromptTokens({}, "")
    index = model.integer(key)
    vocabulary = definition.mapping("model").get("vocab")
    plain = vocabulary.value if vocabulary is not None and isinstance(vocabulary.value, dict) else {}
    found = tokens.get(index) or next((text for text, number in plain.items() if number == index), None)
    if found is None:
        report.refused(model.file, model.at(key), f"is {index}: {TOKENIZER} has no such token")
    else:
        report.mapped(model.file, model.at(key), "stages.generate.prompt.template")
    return PromptTokens({}, found or "")


def _added(definition: ConfigNode) -> Iterator[ConfigNode]:
    listed = definition.get("added_tokens")
    if listed is not None:
        yield from listed.items()

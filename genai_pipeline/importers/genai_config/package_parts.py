"""What packages of all shapes have in common: their files, the tokenizer entry, defaults and the longest text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.decoder import DecoderPart, update_of
from genai_pipeline.importers.genai_config.search import SearchSettings, read_search
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.tokenizer_files import TokenizerFiles

# Types whose cache onnxruntime-genai computes anew, with other rotary factors, once a text grows beyond so many tokens.
_RECOMPUTED: Final[Mapping[str, int]] = {"phi3": 4096, "phimoe": 4096, "phi3small": 8192}


@dataclass(frozen=True, slots=True)
class PackageParts:
    """What is written: metadata, tokenizer files, ONNX files with their weights, and other ``files`` by name."""

    text: str
    tokenizer: TokenizerFiles
    graphs: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)


def family(model: ConfigNode, report: ImportReport) -> str:
    """The model's type, for the summary."""
    report.mapped(model.file, model.at("type"), "summary: nothing here depends on it but its longest text")
    return model.text("type")


def token_fields(model: ConfigNode, tokenizer: TokenizerFiles, report: ImportReport) -> dict[str, Any]:
    """The ``tokenizer`` entry: end tokens and padding are those of genai_config.json."""
    ends, pads = model.integers("eos_token_id"), model.integers("pad_token_id")
    if ends:
        report.mapped(model.file, model.at("eos_token_id"), "tokenizer.eos")
    if pads:
        report.mapped(model.file, model.at("pad_token_id"), "tokenizer.pad")
    return tokenizer.fields(ends, pads[0] if pads and pads[0] >= 0 else None)


def read_settings(config: ConfigNode, model: ConfigNode, report: ImportReport) -> SearchSettings:
    """Generation defaults and the longest text."""
    length = model.integer("context_length", least=1)
    report.mapped(model.file, model.at("context_length"), "limits.context_length")
    most = _RECOMPUTED.get(model.text("type"), length)
    if most < length:
        report.dropped(
            model.file,
            model.at("context_length"),
            f"above {most}: onnxruntime-genai computes the cache of a {model.text('type')} anew there",
        )
    return read_search(config.mapping("search"), min(most, length), report)


def report_sharing(config: ConfigNode, decoder: DecoderPart, report: ImportReport) -> None:
    """``past_present_share_buffer`` follows from the graph."""
    search = config.mapping("search")
    if "past_present_share_buffer" in search:
        update = update_of(decoder)
        what = f"components.decoder.kv.update: {update}, as the graph's attention works" if update else "no cache"
        report.mapped(search.file, search.at("past_present_share_buffer"), what)

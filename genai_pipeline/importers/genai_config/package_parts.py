"""What packages of all shapes have in common: their files, the tokenizer entry, defaults and the longest text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.end_tokens import named_ends, usual_ends
from genai_pipeline.importers.genai_config.decoder import DecoderPart, update_of
from genai_pipeline.importers.genai_config.search import SearchSettings, read_search
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.tokenizer_files import GENERATION_CONFIG, TokenizerFiles

_EOS: Final = "eos_token_id"
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
    """The ``tokenizer`` entry: padding and end tokens are those of genai_config.json, else the tokenizer's files'."""
    ends, pads = model.integers(_EOS), model.integers("pad_token_id")
    if ends:
        report.mapped(model.file, model.at(_EOS), "tokenizer.eos")
    if pads:
        report.mapped(model.file, model.at("pad_token_id"), "tokenizer.pad")
    fields = tokenizer.fields(ends or _other_ends(tokenizer, report), pads[0] if pads and pads[0] >= 0 else None)
    if "eos" not in fields and tokenizer.eos is not None:
        fields["eos"] = [tokenizer.eos]
    elif "eos" not in fields:
        why = "missing, and no other file names a token that ends an answer, so that answers run to their limit"
        report.dropped(model.file, model.at(_EOS), f"{why}; name one with --eos TOKEN")
    return fields


def with_ends(source: SourceFolder, config: ConfigNode, named: Sequence[str], report: ImportReport) -> ConfigNode:
    """The config with the end tokens that the caller names. Raises ImportModelError for unknown names."""
    if not named:
        return config
    model = config.need("model")
    found = named_ends(source, named, model.integer("vocab_size") if "vocab_size" in model else None, report)
    return ConfigNode(config.file, "", {**config.value, "model": {**model.value, _EOS: list(found)}})


def _other_ends(tokenizer: TokenizerFiles, report: ImportReport) -> tuple[int, ...]:
    """End tokens where genai_config.json has none: those of generation_config.json, else control tokens."""
    if tokenizer.ends:
        report.mapped(GENERATION_CONFIG, _EOS, "tokenizer.eos")
    elif tokenizer.eos is None:
        return usual_ends(tokenizer.control, report)
    return tokenizer.ends


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

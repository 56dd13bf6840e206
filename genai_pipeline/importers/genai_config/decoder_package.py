"""Text models: a decoder, alone or behind a graph that turns tokens into embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.decoder import DecoderPart, read_decoder, update_of
from genai_pipeline.importers.genai_config.keys import refuse_parts
from genai_pipeline.importers.genai_config.metadata_text import ComponentText, head_lines, tail_lines, text_decoder
from genai_pipeline.importers.genai_config.ports import PartPorts
from genai_pipeline.importers.genai_config.search import SearchSettings, read_search
from genai_pipeline.importers.genai_config.session_options import read_session
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.tokenizer_files import TokenizerFiles, read_tokenizer_files

# Types whose cache onnxruntime-genai computes anew, with other rotary factors, once a text grows beyond so many tokens.
_RECOMPUTED: Final[Mapping[str, int]] = {"phi3": 4096, "phimoe": 4096, "phi3small": 8192}


@dataclass(frozen=True, slots=True)
class PackageParts:
    """What is written: metadata, tokenizer files, and ONNX files with their weights."""

    text: str
    tokenizer: TokenizerFiles
    graphs: tuple[str, ...]


def decoder_package(source: SourceFolder, config: ConfigNode, name: str, report: ImportReport) -> PackageParts:
    """The package of a text model; what cannot be mapped is refused in the report."""
    model = config.need("model")
    refuse_parts(config, report)
    tokenizer = read_tokenizer_files(source, report)
    decoder = read_decoder(source, model.need("decoder"), report)
    before = _embedding(source, model, decoder, report)
    settings = read_settings(config, model, report)
    report_sharing(config, decoder, report)
    components = [*([before] if before else []), decoder.component]
    text = text_decoder(
        head_lines(name, f"{family(model, report)}, from genai_config.json"),
        token_fields(model, tokenizer, report),
        components,
        _body(decoder, before),
        "logits",
        tail_lines(settings.defaults, settings.most_tokens),
    )
    return PackageParts(text, tokenizer, tuple(component.model for component in components))


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


def _embedding(
    source: SourceFolder, model: ConfigNode, decoder: DecoderPart, report: ImportReport
) -> ComponentText | None:
    """The component that turns tokens into embeddings, where the decoder takes those."""
    part = model.mapping("embedding")
    if "filename" not in part:
        if decoder.embeds is not None:
            hint = "name the graph that makes them in model.embedding.filename"
            report.refused(model.file, model.at("embedding"), "is missing: the decoder takes embeddings", hint)
        return None
    file = part.text("filename")
    signature = source.signature(file)
    report.mapped(part.file, part.at("filename"), "components.embedding.model")
    ports = PartPorts(part, signature, report)
    tokens = ports.input("input_ids", "input_ids", "loop.tokens")
    embeds = ports.output("inputs_embeds", "inputs_embeds", "what the decoder takes")
    ports.refuse_rest()
    if tokens is None or embeds is None or decoder.embeds is None:
        message = "does not stand between tokens and decoder: a port is missing"
        report.refused(part.file, part.path, message, "see to the names of its inputs and outputs")
    return ComponentText("embedding", file, (), read_session(part, report))


def _body(decoder: DecoderPart, before: ComponentText | None) -> list[dict[str, Any]]:
    """The stages of a step."""
    inputs = dict(decoder.inputs)
    stages: list[dict[str, Any]] = []
    if before is not None and decoder.embeds is not None:
        stages.append(
            {"run": "embedding", "inputs": {"input_ids": "loop.tokens"}, "outputs": {"inputs_embeds": "embeds"}}
        )
        inputs[decoder.embeds] = "embeds"
    stages.append({"run": "decoder", "inputs": inputs, "outputs": {decoder.logits: "logits"}})
    return stages

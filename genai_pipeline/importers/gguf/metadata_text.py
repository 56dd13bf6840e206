"""The inference metadata of an imported decoder, as YAML text of about twenty lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from genai_pipeline.importers.gguf.architecture import DecoderConfig
from genai_pipeline.importers.gguf.tokenizer_export import TokenizerExport
from genai_pipeline.importers.package_writer import flow

_SAMPLING_KEYS = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_SAMPLING_KEYS |= {"penalty_repeat": "repetition_penalty"}


def metadata_text(
    name: str, config: DecoderConfig, tokenizer: TokenizerExport, source: Mapping[str, Any], summary: str
) -> str:
    """``inference_metadata.yaml`` for a decoder in model.onnx with its tokenizer beside it."""
    return "\n".join(
        [
            f"# Imported from a GGUF file of architecture {config.architecture}.",
            'schema_version: "1"',
            f"name: {flow(name)}",
            f"summary: {flow(summary)}",
            *_license(source),
            "inputs:",
            "  prompt: {modality: text}",
            "outputs:",
            "  text: {modality: text, value: generate.text}",
            f"tokenizer: {flow(_tokenizer(tokenizer))}",
            "components:",
            "  decoder:",
            "    model: model.onnx",
            "    kv:",
            "      update: in_place",
            '      past: "past_key_values.{layer}.{part}"',
            '      present: "present.{layer}.{part}"',
            *(f"      {key}: {value}" for key, value in _geometry(config).items()),
            "stages:",
            "  - id: generate",
            "    loop: decode",
            "    prompt: prompt.tokens",
            "    body:",
            "      - run: decoder",
            "        inputs: {input_ids: loop.tokens, attention_mask: loop.attention_mask}",
            "        outputs: {logits: logits}",
            "    logits: logits",
            *_generation(source),
            f"limits: {{context_length: {config.context_length}}}",
            "",
        ]
    )


def sampling_defaults(source: Mapping[str, Any]) -> dict[str, float | int]:
    """Sampling settings the file recommends, under the names requests use."""
    found = ((key, source.get(f"general.sampling.{theirs}")) for theirs, key in _SAMPLING_KEYS.items())
    return {key: _rounded(value) for key, value in found if value is not None}


def _rounded(value: float | int) -> float | int:
    """GGUF keeps float32: 0.2 comes back as 0.20000000298, which nobody meant."""
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _generation(source: Mapping[str, Any]) -> Iterable[str]:
    if defaults := sampling_defaults(source):
        yield f"generation: {{defaults: {flow(defaults)}}}"


def _license(source: Mapping[str, Any]) -> Iterable[str]:
    if text := source.get("general.license"):
        yield f"license: {flow(str(text))}"


def _tokenizer(tokenizer: TokenizerExport) -> dict[str, Any]:
    words = tokenizer.vocabulary
    fields: dict[str, Any] = {"file": "tokenizer.json"}
    if tokenizer.chat_template is not None:
        fields["chat_template"] = "chat_template.jinja"
    if tokenizer.add_bos:
        fields |= {"bos": words.text(words.bos), "add_bos": True}
    fields["eos"] = [words.text(index) for index in words.ends]
    if words.pad is not None:
        fields["pad"] = words.text(words.pad)
    return fields


def _geometry(config: DecoderConfig) -> dict[str, Any]:
    return {"layers": config.layers, "heads": config.kv_heads, "head_dim": config.head_dim, "dtype": "float32"}

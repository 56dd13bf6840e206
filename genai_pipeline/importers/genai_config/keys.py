"""Keys of genai_config.json beside those of parts and search: what each is for, and what to do with ones not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.problems import nearest

_MARKS = "a mark that onnxruntime-genai hands to its callers and does not use itself"
DROPPED: Final[Mapping[str, str]] = {
    "model.bos_token_id": "onnxruntime-genai puts no such token in front by it; tokenizer_config.json says what does",
    "model.sep_token_id": "onnxruntime-genai reads it and does not use it",
    "model.vocab_size": "the graph's logits have it",
    "model.bot_token_id": _MARKS,
    "model.eot_token_id": _MARKS,
    "model.bor_token_id": _MARKS,
    "model.eor_token_id": _MARKS,
    "model.vision_start_token_id": "the chat template writes it",
    "model.video_token_id": "films are not among the inputs",
    "model.audio_token_id": "sounds are not among the inputs",
    "model.boa_token_id": "sounds are not among the inputs",
    "model.prompt_templates": "the chat template takes its place",
    "engine": "batching and its limits are options of load and serve",
    "speculative": "drafts change no answer; they are chosen when the package is loaded",
}
REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "model.decoder.pipeline": (
        "a decoder cut into a row of graphs",
        "export it as one graph, or write a component for each graph by hand",
    ),
    "model.decoder.state_groups": ("state that layers share in groups", "export with state for each layer"),
}
_KNOWN = ("model", "search", "engine", "speculative", *(key.rpartition(".")[2] for key in (*DROPPED, *REFUSED)))
_KNOWN += (
    "type",
    "vision",
    "image_token_id",
    "context_length",
    "eos_token_id",
    "pad_token_id",
    "decoder",
    "encoder",
    "embedding",
)
_KNOWN += ("decoder_start_token_id", "temperature", "top_k", "top_p", "do_sample", "max_length", "min_length")
_KNOWN += ("num_beams", "repetition_penalty", "length_penalty", "early_stopping", "past_present_share_buffer")
_KNOWN += ("random_seed", "num_return_sequences", "session_options", "filename", "sliding_window", "head_size")


def refuse_parts(config: ConfigNode, report: ImportReport) -> None:
    """Refuses the parts that a package of this shape cannot have."""
    for path, (why, hint) in REFUSED.items():
        node = _at(config, path)
        if node is not None and node.value not in ([], {}) and (not node.keys or "filename" in node):
            report.refused(config.file, path, why, hint)
    model = config.mapping("model")
    for part in ("vision", "speech") if "encoder" in model else ():
        if "filename" in model.mapping(part):
            why = "pictures or sounds beside an encoder and a decoder"
            report.refused(config.file, model.at(part), why, "write the package by hand: docs/metadata.md")


def report_other_keys(config: ConfigNode, report: ImportReport) -> None:
    """Drops what changes nothing; a key that is not known is dropped too, with the one it may have been meant for."""
    for path, why in DROPPED.items():
        if _at(config, path) is not None:
            report.dropped(config.file, path, why)
    for leaf in report.uncovered(config):
        if leaf.value is None:
            report.dropped(leaf.file, leaf.path, "null means that it is not there")
        elif leaf.path:
            hint = nearest(leaf.path.rpartition(".")[2], _KNOWN)
            why = "no such key is known" + (f"; {hint}" if hint else "")
            report.dropped(leaf.file, leaf.path, why)


def _at(config: ConfigNode, path: str) -> ConfigNode | None:
    node: ConfigNode | None = config
    for key in path.split("."):
        node = node.get(key) if node is not None else None
    return node

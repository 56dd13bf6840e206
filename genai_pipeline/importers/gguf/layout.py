"""Which tensors a decoder has and of which shape; everything is checked here, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.gguf.architecture import DecoderConfig
from genai_pipeline.importers.gguf.reader import SUPPORTED_TYPES, GgufFile

_SHOWN = 5  # problems spelled out in a message


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """A tensor the decoder reads; an optional one is a bias."""

    name: str
    shape: tuple[int, ...]
    optional: bool = False


def tensor_slots(config: DecoderConfig) -> Iterator[TensorSlot]:
    """Every tensor a decoder of this configuration can have."""
    yield TensorSlot("token_embd.weight", (config.vocabulary, config.hidden))
    yield TensorSlot("output_norm.weight", (config.hidden,))
    if not config.tied:
        yield TensorSlot("output.weight", (config.vocabulary, config.hidden))
    yield TensorSlot("rope_freqs.weight", (config.head_dim // 2,), optional=True)
    for layer in range(config.layers):
        yield from _layer_slots(config, f"blk.{layer}")


def _layer_slots(config: DecoderConfig, block: str) -> Iterator[TensorSlot]:
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    linears = {
        "attn_q": (queries, config.hidden),
        "attn_k": (keys, config.hidden),
        "attn_v": (keys, config.hidden),
        "attn_output": (config.hidden, queries),
        "ffn_gate": (config.feed_forward, config.hidden),
        "ffn_up": (config.feed_forward, config.hidden),
        "ffn_down": (config.hidden, config.feed_forward),
    }
    for name, shape in linears.items():
        yield TensorSlot(f"{block}.{name}.weight", shape)
        yield TensorSlot(f"{block}.{name}.bias", shape[:1], optional=True)
    norms = ["attn_norm", "ffn_norm"] + (["post_attention_norm", "post_ffw_norm"] if config.post_norms else [])
    for name in norms:
        yield TensorSlot(f"{block}.{name}.weight", (config.hidden,))
    if config.qk_norm:
        yield TensorSlot(f"{block}.attn_q_norm.weight", (config.head_dim,))
        yield TensorSlot(f"{block}.attn_k_norm.weight", (config.head_dim,))


def check_tensors(file: GgufFile, config: DecoderConfig) -> None:
    """Raises ``ImportModelError`` unless the file has just the expected tensors, in types that can be read."""
    slots = {slot.name: slot for slot in tensor_slots(config)}
    faults = [*_slot_faults(file, slots), *_foreign_faults(file, slots)]
    if faults:
        more = f" (and {len(faults) - _SHOWN} more)" if len(faults) > _SHOWN else ""
        raise ImportModelError(
            f"{file.path}: {'; '.join(faults[:_SHOWN])}{more}",
            hint=f"readable tensor types: {', '.join(SUPPORTED_TYPES)}",
        )


def _slot_faults(file: GgufFile, slots: dict[str, TensorSlot]) -> Iterator[str]:
    for slot in slots.values():
        tensor = file.tensors.get(slot.name)
        if tensor is None:
            if not slot.optional:
                yield f"tensor {slot.name!r} is missing"
        elif tensor.shape != slot.shape:
            yield f"tensor {slot.name!r} has shape {list(tensor.shape)}, expected {list(slot.shape)}"
        elif tensor.ggml_type not in SUPPORTED_TYPES:
            yield f"tensor {slot.name!r} has quantisation type {tensor.ggml_type}, which is not supported"


def _foreign_faults(file: GgufFile, slots: dict[str, TensorSlot]) -> Iterator[str]:
    for name in file.tensors:
        if name not in slots:
            yield f"tensor {name!r} is no part of a supported {file.metadata['general.architecture']} decoder"

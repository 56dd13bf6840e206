"""The tokens of a GGUF file and the ids that have a meaning: begin, end, pad, unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.gguf.reader import GgufFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # GGUF's token types
_SPECIAL_TYPES = (UNKNOWN, CONTROL)
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Control tokens that end a turn although few files declare more than one end token.
_END_TEXTS = frozenset(
    ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>", "</s>")
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens in id order with their types; ids are checked to lie inside."""

    tokens: Sequence[str]
    types: Sequence[int]
    bos: int | None
    ends: tuple[int, ...]  # the declared end token first
    pad: int | None
    unknown: int | None

    @property
    def added(self) -> list[int]:
        """Ids that are recognised as a whole in text: control, unknown and user-defined tokens."""
        return [index for index, kind in enumerate(self.types) if kind in (*_SPECIAL_TYPES, USER_DEFINED)]

    def is_special(self, index: int) -> bool:
        """Whether the token is a control token, which text shown to people leaves out."""
        return self.types[index] in _SPECIAL_TYPES

    def text(self, index: int | None) -> str | None:
        """The text of a token."""
        return None if index is None else self.tokens[index]


def read_vocabulary(file: GgufFile) -> Vocabulary:
    """The vocabulary of ``file``; raises ``ImportModelError`` when lists or ids do not fit together."""
    tokens = file.require("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ImportModelError(f"{file.path}: tokenizer.ggml.tokens is no list of strings")
    types = file.metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise ImportModelError(f"{file.path}: {len(tokens)} tokens but {len(types)} token types")
    rows = file.tensors["token_embd.weight"].shape[0]
    if len(tokens) != rows:
        raise ImportModelError(f"{file.path}: {len(tokens)} tokens but an embedding table of {rows} rows")
    if len(set(tokens)) != len(tokens):
        raise ImportModelError(f"{file.path}: some tokens are listed twice")
    ends = [index for key in _END_KEYS if (index := _token_id(file, key, len(tokens))) is not None]
    ends += [index for index, text in enumerate(tokens) if types[index] == CONTROL and text in _END_TEXTS]
    return Vocabulary(
        tokens=tokens,
        types=types,
        bos=_token_id(file, "bos_token_id", len(tokens)),
        ends=tuple(dict.fromkeys(ends)),
        pad=_token_id(file, "padding_token_id", len(tokens)),
        unknown=_token_id(file, "unknown_token_id", len(tokens)),
    )


def _token_id(file: GgufFile, key: str, size: int) -> int | None:
    value = file.metadata.get(f"tokenizer.ggml.{key}")
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < size:
        raise ImportModelError(f"{file.path}: tokenizer.ggml.{key} is {value!r}, outside of the {size} tokens")
    return int(value)

"""How each pre-tokenizer kind of GGUF cuts text before merges, as the ``pre_tokenizer`` of a tokenizer.json.

The kinds are llama.cpp's names; the patterns are those of the models' own published tokenizers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+"
_SPACES = r"\s+(?!\S)|\s+"
_LINES = rf"\s*[\r\n]+|{_SPACES}"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_PUNCTUATION}[\r\n]*|{_LINES}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_PUNCTUATION}[\r\n]*|{_LINES}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}|{_PUNCTUATION}[\r\n/]*|{_LINES}"
)
_DEFAULT = (
    r"[\p{P}\$\+<=>\^~\|]+",
    rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+|{_PUNCTUATION}|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One kind: the cutting steps before bytes are mapped to characters, and what goes with them."""

    steps: tuple[Json, ...] = ()
    gpt2_pattern: bool = False  # the byte-level step applies GPT-2's own pattern
    ignore_merges: bool = False  # a piece that is a token as a whole is taken without merging
    normalizer: Json | None = None
    adds_bos: bool = False  # unless the file says otherwise

    def to_json(self) -> Json:
        """The ``pre_tokenizer`` field."""
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
        return {
            "type": "Sequence",
            "pretokenizers": [*self.steps, {**byte_level, "use_regex": self.gpt2_pattern}],
        }


def _split(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_GPT2 = PreTokenizer(gpt2_pattern=True)
_DIGITS_GPT2 = PreTokenizer(({"type": "Digits", "individual_digits": True},), gpt2_pattern=True)
_LLAMA3_KIND = PreTokenizer((_split(_LLAMA3),), ignore_merges=True, adds_bos=True)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "default": PreTokenizer(tuple(_split(pattern) for pattern in _DEFAULT)),
    "gpt-2": _GPT2,
    "smollm": _DIGITS_GPT2,
    "starcoder": _DIGITS_GPT2,
    "refact": _DIGITS_GPT2,
    "codeshell": _DIGITS_GPT2,
    "llama-bpe": _LLAMA3_KIND,
    "llama3": _LLAMA3_KIND,
    "llama-v3": _LLAMA3_KIND,
    "qwen2": PreTokenizer((_split(_QWEN2),), normalizer={"type": "NFC"}),
    "tekken": PreTokenizer((_split(_TEKKEN),), ignore_merges=True, adds_bos=True),
}

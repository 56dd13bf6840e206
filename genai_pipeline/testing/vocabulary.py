"""Tiny tokenizers for tests, written as plain ``tokenizer.json`` files and mirrored in a few lines of Python.

``words`` splits text into the longest known words and else single characters; ``byte_level`` has one token per
byte, so one emoji is four tokens. Both know the same special tokens, ``<|go|>`` among them, at which scripts start.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

SPECIALS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|go|>", "<unk>")
ROLES = ("system", "user", "assistant", "tool")
CHARACTERS = (*string.ascii_letters, *string.digits, *string.punctuation, " ", "\n")

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GENERATION_PROMPT = "assistant\n"  # what follows the last <|im_start|> in the template above


@dataclass(frozen=True)
class Vocabulary:
    """Token texts by id; the first ``specials`` of them are special tokens. ``kind`` says how text is split."""

    kind: Literal["words", "bytes"]
    tokens: tuple[str, ...]
    specials: int = len(SPECIALS)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token text -> id. Byte tokens are named by their stand-in characters."""
        return {token: index for index, token in enumerate(self.tokens)}

    def id(self, token: str | int) -> int:
        """The id of a token given by text or id."""
        return token if isinstance(token, int) else self.ids[token]

    def id_list(self, tokens: Iterable[str | int]) -> list[int]:
        """The ids of tokens given by text or id."""
        return [self.id(token) for token in tokens]

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The ids of a text; special tokens are recognised only if asked for."""
        if not parse_special:
            return self._encode_plain(text)
        pattern = "(" + "|".join(re.escape(token) for token in self.tokens[: self.specials]) + ")"
        ids: list[int] = []
        for piece in re.split(pattern, text):
            ids += [self.ids[piece]] if piece in self.tokens[: self.specials] else self._encode_plain(piece)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens left out; bytes that are no UTF-8 become U+FFFD."""
        tokens = [self.tokens[index] for index in ids if index >= self.specials]
        if self.kind == "words":
            return "".join(tokens)
        back = {character: byte for byte, character in enumerate(byte_characters())}
        return bytes(back[token] for token in tokens).decode("utf-8", errors="replace")

    def chat_prompt(self, *turns: tuple[str, str]) -> list[int]:
        """The ids of ``(role, content)`` turns under the ChatML template, ready for an answer."""
        ids: list[int] = []
        start, end = self.ids["<|im_start|>"], self.ids["<|im_end|>"]
        for role, content in turns:
            ids += [start, *self.encode(f"{role}\n"), *self.encode(content), end, *self.encode("\n")]
        return [*ids, start, *self.encode(GENERATION_PROMPT)]

    def write(self, path: Path, *, add_bos: bool = False) -> Path:
        """Write ``tokenizer.json``; with ``add_bos`` its own post-processing puts ``<s>`` in front of every text."""
        path.write_text(json.dumps(self.to_json(add_bos=add_bos), ensure_ascii=False, indent=1), encoding="utf-8")
        return path

    def to_json(self, *, add_bos: bool = False) -> dict[str, Any]:
        """The content of ``tokenizer.json``."""
        parts = _byte_parts(self) if self.kind == "bytes" else _word_parts(self)
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [_added(index, self.tokens[index]) for index in range(self.specials)],
            "normalizer": None,
            "post_processor": _bos_processor(self.ids["<s>"]) if add_bos else None,
            **parts,
        }

    def _encode_plain(self, text: str) -> list[int]:
        """The ids of text without special tokens."""
        if self.kind == "bytes":
            characters = byte_characters()
            return [self.ids[characters[byte]] for byte in text.encode("utf-8")]
        unknown = self.ids["<unk>"]
        return [self.ids.get(word, unknown) for word in re.findall(_word_pattern(self), text)]


def words(*extra: str, size: int | None = None) -> Vocabulary:
    """Roles, printable ASCII characters and ``extra`` words; filled up to ``size`` with ``w<id>`` words."""
    tokens = list(dict.fromkeys((*SPECIALS, *ROLES, *CHARACTERS, *extra)))
    if size is not None:
        if size < len(tokens):
            raise ValueError(f"size {size} is less than the {len(tokens)} tokens that are needed")
        tokens += [f"w{index}" for index in range(len(tokens), size)]
    return Vocabulary("words", tuple(tokens))


def byte_level() -> Vocabulary:
    """The special tokens and one token per byte."""
    return Vocabulary("bytes", (*SPECIALS, *byte_characters()))


def byte_characters() -> tuple[str, ...]:
    """The printable stand-in of each byte in byte-level BPE vocabularies (the mapping GPT-2 introduced)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return tuple(chr(byte) if byte in printable else chr(next(spare)) for byte in range(256))


def _added(index: int, content: str) -> dict[str, Any]:
    """An entry of ``added_tokens``."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": content, **flags}


def _word_pattern(vocabulary: Vocabulary) -> str:
    """A regular expression that matches the longest known word, else one character."""
    known = sorted(vocabulary.tokens[vocabulary.specials :], key=lambda token: (-len(token), token))
    return "|".join(_escaped(word) for word in known if len(word) > 1) + r"|[\s\S]"


def _escaped(word: str) -> str:
    """``word`` as a pattern that Python's ``re`` and Oniguruma read alike."""
    return "".join(c if c.isalnum() or c in " \n_" else f"\\{c}" for c in word)


def _word_parts(vocabulary: Vocabulary) -> dict[str, Any]:
    """Pre-tokenizer, model and decoder that split into words and characters."""
    return {
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": _word_pattern(vocabulary)},
            "behavior": "Isolated",
            "invert": False,
        },
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary.ids, "unk_token": "<unk>"},
    }


def _byte_parts(vocabulary: Vocabulary) -> dict[str, Any]:
    """Pre-tokenizer, model and decoder that give one token per byte."""
    byte_level_step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model: dict[str, Any] = {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocabulary.ids, "merges": []}
    return {"pre_tokenizer": byte_level_step, "decoder": dict(byte_level_step), "model": model}


def _bos_processor(bos: int) -> dict[str, Any]:
    """A post-processor that puts ``<s>`` first."""
    special = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": kind}} for name, kind in (("A", 0), ("B", 1)))
    return {
        "type": "TemplateProcessing",
        "single": [special, first],
        "pair": [special, first, second],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [bos], "tokens": ["<s>"]}},
    }

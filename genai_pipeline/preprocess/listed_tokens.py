"""Vocabularies that are no more than a list of texts: tokenizers of the kinds ``list`` and ``characters``.

The file is a list of texts, a line each (or, with the ending ``.json``, a list of texts, or an object from text to id);
the id of a text is its place. A tokenizer.json is written down from it, so that everything that works on tokenizers
works on these too.

| kind | a text is split | tokens are joined |
|---|---|---|
| ``list`` | at white space, each word is a token | with spaces between |
| ``characters`` | into its characters, each is a token | with nothing between |

What is not in the list becomes the unknown token, if the list has one of ``UNKNOWN``; else the text is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.model import TokenizerSpec

KINDS: Final = ("list", "characters")
UNKNOWN: Final = ("<unk>", "[UNK]", "<UNK>")
MISSING: Final = "\U0010fffc"  # stands for what a list without an unknown token lacks; its id comes after all others


def tokenizer_json(data: bytes, spec: TokenizerSpec) -> bytes:
    """A tokenizer.json for the list in ``data``; of other kinds it is one already. Raises ValueError for no list."""
    if spec.kind not in KINDS:
        return data
    ids = _json_ids(data) if spec.file.endswith(".json") else _line_ids(data)
    if not ids:
        raise ValueError("it lists no tokens")
    unknown = next((text for text in UNKNOWN if text in ids), MISSING)
    vocabulary = {**ids} if unknown in ids else {**ids, MISSING: max(ids.values()) + 1}
    special = [*_declared(ids, spec), *([MISSING] if unknown == MISSING else [])]
    separator = {"Regex": r"\s+"} if spec.kind == "list" else {"Regex": r"(?m:.)"}
    behavior = "Removed" if spec.kind == "list" else "Isolated"
    made = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(text, vocabulary[text]) for text in dict.fromkeys(special)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": separator, "behavior": behavior, "invert": False},
        "post_processor": None,
        "decoder": None if spec.kind == "list" else {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown},
    }
    return json.dumps(made, ensure_ascii=False).encode()


def refuse_missing(text: str, known: Any) -> None:
    """Raise RequestError naming the first part of ``text`` for which ``known(part)`` is no id."""
    parts = text.split() if any(map(str.isspace, text)) and known(" ") is None else list(text)
    lacking = next((part for part in parts if known(part) is None), text)
    raise RequestError(f"the text has {lacking!r}, for which its tokenizer has no token", param="prompt")


def _line_ids(data: bytes) -> dict[str, int]:
    try:
        lines = data.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text: {error}") from error
    return _numbered([line.removesuffix("\r") for line in lines] if data else [])


def _json_ids(data: bytes) -> dict[str, int]:
    try:
        found = json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if isinstance(found, list):
        return _numbered(found)
    if not isinstance(found, dict):
        raise ValueError("it must hold a list of texts, or an object from text to id")
    for text, number in found.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ValueError(f"the id of {text!r} must be an integer from 0 on, not {number!r}")
    if len(set(found.values())) < len(found):
        raise ValueError("two texts have the same id")
    return found


def _numbered(texts: list[Any]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"entry {number} must be a text, not {text!r}")
        if text in ids:
            raise ValueError(f"{text!r} is listed twice, as {ids[text]} and as {number}")
        ids[text] = number
    return ids


def _declared(ids: Mapping[str, int], spec: TokenizerSpec) -> list[str]:
    """Texts of the tokens that the metadata gives a meaning; what the list lacks is reported elsewhere."""
    texts = {number: text for text, number in ids.items()}
    named = (spec.bos, spec.pad, *spec.eos)
    found = (texts.get(token) if isinstance(token, int) else token for token in named)
    return [text for text in found if text is not None and text in ids]


def _added(text: str, number: int) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": text, **flags, "special": True}

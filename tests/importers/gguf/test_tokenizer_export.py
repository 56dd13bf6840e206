"""Exported tokenizers against independent implementations of what the GGUF kinds mean."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import PreTokenizer

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.gguf import import_gguf
from genai_pipeline.importers.gguf.pretokenizers import PRE_TOKENIZERS

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# llama.cpp cuts with one pattern after the other; the pieces of one are the texts of the next.
PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "starcoder": [r"\p{N}", GPT2],
    "llama-bpe": [
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "qwen2": [
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "default": [
        r"[\p{P}\$\+<=>\^~\|]+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
        r"\p{N}+",
        r"[0-9][0-9][0-9]",
    ],
}
TEXTS = [
    "Hello world, it's 2024! I'VE 12345 things",
    "  two  spaces\n\n\tand tabs \r\n end  ",
    "naïve café — “quotes”, x²+½=٣٤",
    "数字123と漢字 한국어 русский",
    "a=b+c;if(x<=3){return~y|z^2}",
    "'s 't ''ll don't 'Re",
]


def pieces(patterns: list[str], text: str) -> list[str]:
    found = [text]
    for pattern in patterns:
        found = [piece for part in found for piece in cut(pattern, part)]
    return found


def cut(pattern: str, text: str) -> list[str]:
    out, last = [], 0
    for match in regex.finditer(pattern, text):
        out += [text[last : match.start()], match.group()]
        last = match.end()
    return [piece for piece in [*out, text[last:]] if piece]


def pre_tokenizer(kind: str) -> PreTokenizer:
    document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None}
    document |= {"post_processor": None, "decoder": None, "pre_tokenizer": PRE_TOKENIZERS[kind].to_json()}
    document["model"] = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    return Tokenizer.from_str(json.dumps(document)).pre_tokenizer


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", PATTERNS)
def test_text_is_cut_as_the_kind_says(kind: str, text: str) -> None:
    found = [text[start:end] for _, (start, end) in pre_tokenizer(kind).pre_tokenize_str(text)]
    assert found == pieces(PATTERNS[kind], text)


@pytest.mark.parametrize("kind", sorted(PRE_TOKENIZERS))
def test_every_kind_loads_and_keeps_the_text(kind: str) -> None:
    for text in TEXTS:
        assert "".join(text[s:e] for _, (s, e) in pre_tokenizer(kind).pre_tokenize_str(text)) == text


SPACE = "\u2581"
WORDS = ["he", "ll", "lo", "hell", "hello", SPACE + "h", SPACE + "he", SPACE + "hello", "ello", "o" + SPACE, SPACE * 2]


def spm_tokens() -> tuple[list[str], list[float], list[int]]:
    """A small SentencePiece vocabulary: unknown, begin, end, all bytes, letters, then merged pieces by score."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [2, 3, 3, *[6] * 256]
    letters = [SPACE, *"helo"]
    tokens += letters + WORDS
    types += [1] * (len(letters) + len(WORDS))
    scores = [0.0] * 259 + [-1000.0 - i for i in range(len(letters))] + [-float(i) for i in range(len(WORDS))]
    return tokens, scores, types


def spm_encode(text: str, *, prefix: bool) -> list[int]:
    """SentencePiece's rule: join the neighbours whose union scores best, leftmost first, until none is a token."""
    tokens, scores, _ = spm_tokens()
    index = {token: i for i, token in enumerate(tokens)}
    symbols = list((SPACE if prefix and text else "") + text.replace(" ", SPACE))
    while True:
        unions = [(-scores[index[a + b]], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in index]
        if not unions:
            break
        _, i = min(unions)
        symbols[i : i + 2] = ["".join(symbols[i : i + 2])]
    found: list[int] = []
    for symbol in symbols:
        found += [index[symbol]] if symbol in index else [index[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return found


def spm_model(tiny_model: Any, **changes: Any) -> Any:
    tokens, scores, types = spm_tokens()
    fields: dict[str, Any] = {"model": "llama", "pre": None, "tokens": tokens, "scores": scores, "token_type": types}
    fields |= {"merges": None, "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, **changes}

    class SpmModel(tiny_model):  # type: ignore[misc]
        vocabulary = len(tokens)

    return SpmModel(general={f"tokenizer.ggml.{key}": value for key, value in fields.items()})


def exported(tmp_path: Path, model: Any) -> tuple[Tokenizer, str]:
    package = import_gguf(model.write(tmp_path / "tiny.gguf"), tmp_path / "package")
    return Tokenizer.from_file(str(package / "tokenizer.json")), (package / "inference_metadata.yaml").read_text()


@pytest.fixture(scope="module")
def spm(tmp_path_factory: pytest.TempPathFactory, tiny_model: Any) -> dict[bool, Tokenizer]:
    """The small SentencePiece tokenizer, with and without a space put before every text."""
    models = {prefix: spm_model(tiny_model, add_space_prefix=prefix) for prefix in (True, False)}
    return {prefix: exported(tmp_path_factory.mktemp("spm"), model)[0] for prefix, model in models.items()}


@given(text=st.text(alphabet="helo é", max_size=20), prefix=st.booleans())
def test_sentencepiece_merges_by_score(spm: dict[bool, Tokenizer], text: str, prefix: bool) -> None:
    tokenizer = spm[prefix]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids == spm_encode(text, prefix=prefix)
    assert tokenizer.decode(ids) == text


def test_sentencepiece_begins_with_the_begin_token(tmp_path: Path, tiny_model: Any) -> None:
    tokenizer, metadata = exported(tmp_path, spm_model(tiny_model))
    assert tokenizer.encode("hello").ids == [1, *spm_encode("hello", prefix=True)]
    assert '{file: tokenizer.json, bos: "<s>", add_bos: true, eos: ["</s>"]}' in metadata


def test_sentencepiece_without_begin_token_when_the_file_says_so(tmp_path: Path, tiny_model: Any) -> None:
    tokenizer, metadata = exported(tmp_path, spm_model(tiny_model, add_bos_token=False))
    assert tokenizer.encode("hello").ids == spm_encode("hello", prefix=True)
    assert "add_bos" not in metadata


def test_byte_level_merges_and_special_tokens(tmp_path: Path, tiny_model: Any) -> None:
    tokenizer, metadata = exported(tmp_path, tiny_model())
    encoded = tokenizer.encode("<|start|>hehe!<|end|>")
    assert encoded.tokens == ["<|start|>", "he", "he", "!", "<|end|>"]
    assert tokenizer.decode(encoded.ids) == "hehe!"
    assert 'eos: ["<|end|>"]' in metadata


def test_user_defined_tokens_are_whole_but_shown(tmp_path: Path, tiny_model: Any) -> None:
    model = tiny_model(general={"tokenizer.ggml.token_type": [3, 4, *[1] * 95]})
    tokenizer, _ = exported(tmp_path, model)
    assert tokenizer.decode(tokenizer.encode("<|start|>he<|end|>").ids) == "<|start|>he"


def test_end_tokens_are_every_declared_one_and_the_known_control_tokens(tmp_path: Path, tiny_model: Any) -> None:
    types = [3, 3, *[1] * 95]
    keys = {"eos_token_id": 1, "eot_token_id": 5, "token_type": types}
    _, metadata = exported(tmp_path, tiny_model(general={f"tokenizer.ggml.{k}": v for k, v in keys.items()}))
    assert 'eos: ["<|start|>", "$", "<|end|>"]' in metadata


def test_lists_that_do_not_fit_together_are_named(tmp_path: Path, tiny_model: Any) -> None:
    for key, value, message in (
        ("tokenizer.ggml.token_type", [1], "97 tokens but 1 token types"),
        ("tokenizer.ggml.tokens", ["a", "b"], "2 tokens but 97 token types"),
        ("tokenizer.ggml.tokens", ["a"] * 97, "some tokens are listed twice"),
    ):
        with pytest.raises(ImportModelError, match=message):
            exported(tmp_path, tiny_model(general={key: value}))

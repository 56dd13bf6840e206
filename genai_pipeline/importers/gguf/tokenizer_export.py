"""A tokenizer.json from a GGUF file's own vocabulary: byte-level BPE, and SentencePiece BPE with byte fallback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.gguf.pretokenizers import PRE_TOKENIZERS, Json
from genai_pipeline.importers.gguf.reader import GgufFile
from genai_pipeline.importers.gguf.vocabulary import BYTE, NORMAL, USER_DEFINED, Vocabulary, read_vocabulary

_SPACE = "\u2581"  # SentencePiece writes a space as this character


@dataclass(frozen=True, slots=True)
class TokenizerExport:
    """What goes into the package: tokenizer.json, the chat template, and which tokens have a meaning."""

    definition: Json
    chat_template: str | None
    vocabulary: Vocabulary
    add_bos: bool


def export_tokenizer(file: GgufFile) -> TokenizerExport:
    """The tokenizer of ``file``; raises ``ImportModelError`` naming a kind that is not supported."""
    kind = str(file.require("tokenizer.ggml.model"))
    if kind not in _KINDS:
        raise ImportModelError(
            f"{file.path}: tokenizer kind {kind!r} is not supported", hint=f"supported: {', '.join(sorted(_KINDS))}"
        )
    vocabulary = read_vocabulary(file)
    definition, adds_bos = _KINDS[kind](file, vocabulary)
    add_bos = bool(file.metadata.get("tokenizer.ggml.add_bos_token", adds_bos))
    if add_bos and vocabulary.bos is None:
        raise ImportModelError(
            f"{file.path}: prompts begin with a begin token, but tokenizer.ggml.bos_token_id is missing"
        )
    if file.metadata.get("tokenizer.ggml.add_eos_token"):
        raise ImportModelError(f"{file.path}: a tokenizer that ends every prompt with an end token is not supported")
    return TokenizerExport(
        definition={
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [_added_token(vocabulary, index) for index in vocabulary.added],
            **definition,
            "post_processor": _begin_with(vocabulary) if add_bos else None,
        },
        chat_template=file.metadata.get("tokenizer.chat_template"),
        vocabulary=vocabulary,
        add_bos=add_bos,
    )


def _added_token(vocabulary: Vocabulary, index: int) -> Json:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": index, "content": vocabulary.tokens[index], **flags, "special": vocabulary.is_special(index)}


def _begin_with(vocabulary: Vocabulary) -> Json:
    """Puts the begin token before every text."""
    text = vocabulary.text(vocabulary.bos)
    begin = {"SpecialToken": {"id": text, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in ("A", "B"))
    special = {text: {"id": text, "ids": [vocabulary.bos], "tokens": [text]}}
    return {
        "type": "TemplateProcessing",
        "single": [begin, first],
        "pair": [begin, first, begin, second],
        "special_tokens": special,
    }


def _bpe(vocabulary: Vocabulary, merges: list[tuple[str, str]], **options: Any) -> Json:
    defaults = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    return {
        "type": "BPE",
        **defaults,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **options,
        "vocab": {text: index for index, text in enumerate(vocabulary.tokens)},
        "merges": merges,
    }


def _byte_level(file: GgufFile, vocabulary: Vocabulary) -> tuple[Json, bool]:
    kind = str(file.metadata.get("tokenizer.ggml.pre", "default"))
    pre_tokenizer = PRE_TOKENIZERS.get(kind)
    if pre_tokenizer is None:
        raise ImportModelError(
            f"{file.path}: pre-tokenizer {kind!r} is not supported",
            hint=f"supported: {', '.join(sorted(PRE_TOKENIZERS))}",
        )
    definition = {
        "normalizer": pre_tokenizer.normalizer,
        "pre_tokenizer": pre_tokenizer.to_json(),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _bpe(vocabulary, _listed_merges(file), ignore_merges=pre_tokenizer.ignore_merges),
    }
    return definition, pre_tokenizer.adds_bos


def _listed_merges(file: GgufFile) -> list[tuple[str, str]]:
    merges = []
    for entry in file.require("tokenizer.ggml.merges"):
        left, separator, right = entry.partition(" ")
        if not (left and separator and right):
            raise ImportModelError(f"{file.path}: merge {entry!r} does not have two parts")
        merges.append((left, right))
    return merges


def _sentencepiece(file: GgufFile, vocabulary: Vocabulary) -> tuple[Json, bool]:
    """SentencePiece merges the neighbours with the best-scored union first; as a list that is merges by score."""
    prefixed = bool(file.metadata.get("tokenizer.ggml.add_space_prefix", True))
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    steps = [{"type": "Prepend", "prepend": _SPACE}, spaces] if prefixed else [spaces]
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefixed else []
    decoders = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        *strip,
    ]
    scores = file.require("tokenizer.ggml.scores")
    if len(scores) != len(vocabulary.tokens):
        raise ImportModelError(f"{file.path}: {len(vocabulary.tokens)} tokens but {len(scores)} scores")
    definition = {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _bpe(
            vocabulary,
            list(_scored_merges(vocabulary, scores)),
            unk_token=vocabulary.text(vocabulary.unknown),
            fuse_unk=True,
            byte_fallback=BYTE in vocabulary.types,
        ),
    }
    return definition, True


def _scored_merges(vocabulary: Vocabulary, scores: list[float]) -> Iterator[tuple[str, str]]:
    """Every way to join two tokens into a third, best-scored third first; equal ones in id order of their parts."""
    usable = {t: i for i, t in enumerate(vocabulary.tokens) if vocabulary.types[i] in (NORMAL, USER_DEFINED)}
    for text, _ in sorted(usable.items(), key=lambda item: (-scores[item[1]], item[1])):
        splits = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        pairs = [(left, right) for left, right in splits if left in usable and right in usable]
        yield from sorted(pairs, key=lambda pair: (usable[pair[0]], usable[pair[1]]))


_KINDS = {"gpt2": _byte_level, "llama": _sentencepiece}

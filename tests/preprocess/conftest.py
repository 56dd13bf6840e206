"""Small tokenizers of the kinds in the field, and their counterparts in transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.preprocess.chat import ChatTemplate
from genai_pipeline.preprocess.template_source import TemplateSource
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Location

CONTROL = (
    "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|start_header|>", "<|end_header|>", "<|eot|>", "[INST]",
    "[/INST]", "[TOOLS]", "[/TOOLS]", "[CALLS]", "[RESULTS]", "[/RESULTS]", "<start_of_turn>", "<end_of_turn>",
    "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜calls▁begin｜>", "<｜calls▁end｜>", "<｜out▁begin｜>",
    "<｜out▁end｜>", "<|system|>", "<|user|>", "<|tool|>", "<|/tool|>", "<|TURN|>", "<|END_TURN|>", "<|SYSTEM|>",
    "<|USER|>", "<|BOT|>", "<image>",
)  # fmt: skip
STRIPPING = ("<|end|>", "<|assistant|>")  # swallow the white space after them
ORDINARY = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
CORPUS = (
    "You are a careful helper. Answer from the documents and be brief.",
    "The quick brown fox jumps over the lazy dog, again and again, in the warm evening light.",
    '{"name": "get_weather", "parameters": {"city": "Paris"}, "description": "The weather of a city"}',
    "system user assistant tool model Document: title text results Environment Today Knowledge",
    "Füße, naïveté, Привет мир, 안녕하세요 세계, こんにちは",
)


def byte_level() -> tokenizers.Tokenizer:
    """Byte-level BPE, the kind of GPT, Llama 3 and Qwen."""
    built = tokenizers.Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    return _with_added(built, trainer)


def sentencepiece_bpe() -> tokenizers.Tokenizer:
    """BPE with byte fallback and a space put in front, the kind of Llama 2 and Gemma."""
    built = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    built.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>", *fallback], show_progress=False)
    built.train_from_iterator(CORPUS[:4], trainer)
    state = json.loads(built.to_str())
    state["added_tokens"] = []  # byte tokens are vocabulary, not added tokens
    built = tokenizers.Tokenizer.from_str(json.dumps(state))
    return _with_added(built, None)


def unigram() -> tokenizers.Tokenizer:
    """Unigram with a space put before the first piece only; control tokens are pieces of its vocabulary too."""
    pieces = {piece for line in CORPUS for piece in "".join(f"▁{word}" for word in line.split())} | {"▁"}
    vocabulary = [("<unk>", 0.0), ("</s>", 0.0), ("▁the", -3.0), ("▁a", -3.0), ("er", -4.0)]
    built = tokenizers.Tokenizer(models.Unigram([*vocabulary, *((piece, -9.0) for piece in sorted(pieces))], unk_id=0))
    built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    built.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    return _with_added(built, None)


def word_piece() -> tokenizers.Tokenizer:
    """WordPiece, the kind of BERT: lower case, spaces put back when decoding."""
    words = ["[UNK]", *"abcdefghijklmnopqrstuvwxyz.,!<>|_/[]", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"), "the"]
    built = tokenizers.Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    built.normalizer = normalizers.BertNormalizer()
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece()
    return _with_added(built, None)


def _with_added(built: tokenizers.Tokenizer, trainer: Any) -> tokenizers.Tokenizer:
    if trainer is not None:
        built.train_from_iterator(CORPUS, trainer)
    built.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROL])
    built.add_special_tokens([AddedToken(text, normalized=False, rstrip=True) for text in STRIPPING])
    built.add_tokens([AddedToken(text, normalized=False) for text in ORDINARY])
    return built


KINDS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "byte_level": byte_level,
    "sentencepiece_bpe": sentencepiece_bpe,
    "unigram": unigram,
    "word_piece": word_piece,
}


def adds_bos(built: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer with a post-processor that puts ``<s>`` in front."""
    built.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", built.token_to_id("<s>"))]
    )
    return built


def spec_of(**fields: Any) -> TokenizerSpec:
    """A declared tokenizer; bos and eos are ``<s>`` and ``</s>`` unless given."""
    at = Location("inference_metadata.yaml", 7, 12, "tokenizer")
    usual = {"at": at, "name": "default", "file": "tokenizer.json", "bos": "<s>", "eos": ("</s>",)}
    return TokenizerSpec(**{**usual, **fields})


@pytest.fixture(scope="session")
def tokenizer_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with a tokenizer.json for every kind."""
    folders = {}
    for name, build in KINDS.items():
        folders[name] = tmp_path_factory.mktemp(name)
        build().save(str(folders[name] / "tokenizer.json"))
    return folders


@pytest.fixture(scope="session")
def loaded(tokenizer_files: dict[str, Path]) -> dict[str, Tokenizer]:
    """A loaded tokenizer of every kind."""
    return {name: Tokenizer.load(folder, spec_of()) for name, folder in tokenizer_files.items()}


def chat_of(source: str, tokenizer: Tokenizer) -> ChatTemplate:
    """A chat template from its text."""
    return ChatTemplate(TemplateSource(source, Location("chat_template.jinja")), tokenizer)


@pytest.fixture(scope="session")
def byte_tokenizer(loaded: dict[str, Tokenizer]) -> Tokenizer:
    """The byte-level tokenizer, which can encode anything."""
    return loaded["byte_level"]


@pytest.fixture(scope="session")
def make_chat() -> Callable[[str, Tokenizer], ChatTemplate]:
    """Makes a chat template from its text."""
    return chat_of


@pytest.fixture(scope="session")
def make_spec() -> Callable[..., TokenizerSpec]:
    """Makes a declared tokenizer, see ``spec_of``."""
    return spec_of


@pytest.fixture
def save_tokenizer(tmp_path: Path) -> Callable[..., Path]:
    """Saves the byte-level tokenizer into a new folder of its own, with JSON files beside it."""

    def save(
        *,
        bos_processor: bool = False,
        change: Callable[[tokenizers.Tokenizer], None] = lambda _: None,
        **beside: Any,
    ) -> Path:
        folder = tmp_path / f"package{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        built = adds_bos(byte_level()) if bos_processor else byte_level()
        change(built)
        built.save(str(folder / "tokenizer.json"))
        for name, content in beside.items():
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
        return folder

    return save

"""Vocabularies of several kinds: what masks allow decodes to what was asked for, and forced tokens are canonical."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from genai_pipeline.constraints.compiler import ConstraintCompiler
from genai_pipeline.constraints.spec import Preamble, read_constraint
from genai_pipeline.constraints.token_table import TokenTable
from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Location

CORPUS = [
    '{"name": "Ada", "age": 36, "tags": ["yes", "no", "maybe"]}',
    "yes no maybe, hello world",
    "the name of the age",
] * 20


def load(folder, built, eos="</s>"):
    built.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder, TokenizerSpec(Location("test"), "text", "tokenizer.json", eos=(eos,)))


@pytest.fixture(scope="module")
def byte_pairs(tmp_path_factory):
    """A byte-level BPE with merges, trained here."""
    built = tokenizers.Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    built.train_from_iterator(CORPUS, trainer)
    return load(tmp_path_factory.mktemp("byte_pairs"), built)


@pytest.fixture(scope="module")
def sentence_pieces(tmp_path_factory):
    """Pieces with ▁ for spaces, byte tokens, and a decoder that drops the first space, as Llama 2 has."""
    words = ["yes", "no", "hello", "world", "name", '"', "{", "}", ":", ",", "[", "]", "1", "2", "a", "b", "<think>"]
    pieces = [
        "<unk>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *words,
        *(f"▁{word}" for word in words),
        "▁",
    ]
    built = tokenizers.Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0, byte_fallback=True))
    built.add_special_tokens(["</s>"])
    built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    built.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return load(tmp_path_factory.mktemp("sentence_pieces"), built)


@pytest.fixture(params=["byte_pairs", "sentence_pieces"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def draw(tokenizer, options, seed, preamble=None, most=120):
    """Text of one random run, or None when it was cut."""
    compiler = ConstraintCompiler(tokenizer, tokenizer.highest_id + 8, tokenizer.end_ids)
    spec = read_constraint(options)
    assert spec is not None
    state = compiler.compile(spec.after(preamble)).start()
    rng = np.random.default_rng(seed)
    row = np.zeros((tokenizer.highest_id + 8 + 31) // 32, np.int32)
    tokens = []
    for _ in range(most):
        state.fill(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        weights = np.where(np.isin(allowed, list(tokenizer.end_ids)), 20.0, 1.0)
        token = int(rng.choice(allowed, p=weights / weights.sum()))
        state.accept(token)
        if token in tokenizer.end_ids:
            return tokenizer.decode(tokens)
        tokens.append(token)
    return None


def runs(tokenizer, options, count=30, preamble=None):
    return [text for seed in range(count) if (text := draw(tokenizer, options, seed, preamble)) is not None]


def test_choices(tokenizer):
    choices = ["yes", "no", "hello world", " yes", "  2", "日本"]
    found = runs(tokenizer, {"choices": choices}, 60)
    assert len(found) == 60
    assert set(found) <= set(choices)
    assert len(set(found)) > 3


def test_regexes(tokenizer):
    for pattern in (r"[ab]{2}", r" [ab]{2}", r" ?(?:yes|no)", r"\s*[a-z]{1,4}", r"[^ ].{0,3}"):
        found = runs(tokenizer, {"regex": pattern}, 20)
        assert found
        assert all(re.fullmatch(pattern, text) for text in found), pattern


def test_json(tokenizer):
    schema = {"type": "object", "properties": {"name": {"enum": ["yes", "no", " a"]}}, "required": ["name"]}
    schema |= {"additionalProperties": False}
    found = runs(tokenizer, {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
    assert found
    assert all(json.loads(text)["name"] in ("yes", "no", " a") for text in found)


def test_optional_reasoning(tokenizer):
    preamble = Preamble("<think>", "</think>", mandatory=False)
    found = runs(tokenizer, {"choices": ["yes", " no"]}, 20, preamble)
    assert found
    assert all(re.fullmatch(r"(?:<think>(?s:.*)</think>\n{0,2})?(?:yes| no)", text) for text in found)


def test_the_bytes_of_all_tokens(byte_pairs, sentence_pieces):
    for tokenizer in (byte_pairs, sentence_pieces):
        table = TokenTable(tokenizer, tokenizer.highest_id + 1)
        text = 'hello {"name": "日本"} yes\n'
        tokens = tokenizer.encode_text(text, allow_special=False)
        assert table.written(tokens).decode().removeprefix(" " * table.drops_space) == text
        assert table.texts[tokenizer.token_id("</s>")] == b""
        assert table.written(table.pieces(text.encode())) == text.encode()


def test_what_tokenizers_do_at_the_start(byte_pairs, sentence_pieces):
    assert not TokenTable(byte_pairs, 1000).drops_space
    assert TokenTable(byte_pairs, 1000).canonical
    assert TokenTable(sentence_pieces, 1000).drops_space
    assert not TokenTable(sentence_pieces, 1000).canonical


def test_nothing_is_forced_where_pieces_of_text_are_encoded_otherwise(sentence_pieces):
    compiler = ConstraintCompiler(sentence_pieces, sentence_pieces.highest_id + 1, sentence_pieces.end_ids)
    spec = read_constraint({"choices": ["hello world"]})
    assert spec is not None
    state = compiler.compile(spec).start()
    assert state.forced() == []
    row = np.zeros((sentence_pieces.highest_id + 32) // 32, np.int32)
    state.fill(row)
    allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
    texts = {sentence_pieces.id_to_token(int(token)) for token in allowed}
    assert texts == {"▁hello", "hello", "▁", "<0x68>", "<0x20>"}


def test_forced_tokens_are_those_of_the_whole_text(byte_pairs):
    compiler = ConstraintCompiler(byte_pairs, byte_pairs.highest_id + 1, byte_pairs.end_ids)
    forced = 0
    for start, answers in (
        ('{"name": "Ada", "age": ', ["36", "4"]),
        ("yes no maybe, hello ", ["world", "wor", "age"]),
        ("the name of ", ["the", "them"]),
    ):
        alternatives = " | ".join(json.dumps(answer) for answer in answers)
        spec = read_constraint({"grammar": f"start: {json.dumps(start)} ({alternatives})"})
        assert spec is not None
        state = compiler.compile(spec).start()
        tokens = state.forced()
        forced += len(tokens)
        for answer in answers:
            whole = byte_pairs.encode_text(start + answer, allow_special=False)
            assert tuple(tokens) == whole[: len(tokens)]
        for token in tokens:
            state.accept(token)
    assert forced > 10


def test_a_decoder_that_minds_neighbours_is_refused(tmp_path):
    built = tokenizers.Tokenizer(models.WordLevel({"</s>": 0, "we": 1, "do": 2}, unk_token="we"))
    built.add_special_tokens(["</s>"])
    built.decoder = decoders.CTC()
    tokenizer = load(tmp_path, built)
    with pytest.raises(OptionError, match="cannot be constrained with this tokenizer"):
        draw(tokenizer, {"choices": ["we"]}, 0)

"""Encoding, BOS on every path, end tokens from every declaration, and errors that name what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from genai_pipeline.errors import PackageError, PackageInvalidError, RequestError
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.preprocess.chat import ChatTemplate
from genai_pipeline.preprocess.plain_encoder import Piece
from genai_pipeline.preprocess.tokenizer import Tokenizer, read_tokenizer
from genai_pipeline.problems import Problem, Problems

Save = Callable[..., Path]
Spec = Callable[..., TokenizerSpec]
MakeChat = Callable[[str, Tokenizer], ChatTemplate]


def problems_of(folder: Path, spec: TokenizerSpec) -> list[Problem]:
    """What is wrong with a declared tokenizer."""
    problems = Problems()
    read_tokenizer(folder, spec, problems)
    return list(problems)


def test_control_tokens_are_parsed_only_where_that_is_asked_for(byte_tokenizer: Tokenizer) -> None:
    text = "The fox</s>"
    plain = byte_tokenizer.encode_text(text, allow_special=False)
    parsed = byte_tokenizer.encode_text(text, allow_special=True)
    assert byte_tokenizer.token_id("</s>") not in plain
    assert parsed[-1] == byte_tokenizer.token_id("</s>")
    assert byte_tokenizer.decode(plain) == text
    assert byte_tokenizer.decode(parsed) == "The fox"
    assert byte_tokenizer.decode(parsed, skip_special=False) == text


@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece_bpe", "unigram", "word_piece"])
def test_control_pieces_encode_as_parsed_text_does(kind: str, loaded: dict[str, Tokenizer]) -> None:
    tokenizer = loaded[kind]
    parts = ["<s>", "<|user|>", "The quick\nfox", "<|end|>", "  \n<think>a</think> b ", "<|assistant|>", " the", "</s>"]
    pieces = [Piece(part, control=part in tokenizer.control_tokens) for part in parts]
    assert tokenizer.encode_pieces(pieces) == tokenizer.encode_text("".join(parts), allow_special=True)


@pytest.mark.parametrize(
    ("post_processor", "add_bos", "config", "wanted"),
    [
        (False, None, {}, False),
        (True, None, {}, True),
        (True, False, {}, False),
        (False, True, {}, True),
        (False, None, {"add_bos_token": True}, True),
        (True, None, {"add_bos_token": False}, False),
        (True, True, {"add_bos_token": False}, True),
    ],
)
def test_exactly_one_bos_on_every_path(
    post_processor: bool,
    add_bos: bool | None,
    config: dict[str, Any],
    wanted: bool,
    save_tokenizer: Save,
    make_spec: Spec,
    make_chat: MakeChat,
) -> None:
    folder = save_tokenizer(bos_processor=post_processor, **({"tokenizer_config.json": config} if config else {}))
    tokenizer = Tokenizer.load(folder, make_spec(add_bos=add_bos))
    bos = tokenizer.bos_id
    assert bos == tokenizer.token_id("<s>")
    messages = [{"role": "user", "content": "<s>The fox"}]
    with_bos = make_chat("{{ bos_token }}{{ messages[0].content }}", tokenizer)
    without = make_chat("{{ messages[0].content }}", tokenizer)
    assert [token == bos for token in with_bos.encode_chat(messages)][:2] == [True, False]
    assert with_bos.encode_chat(messages).count(bos) == 1
    assert without.encode_chat(messages).count(bos) == wanted
    assert tokenizer.encode_prompt("The fox").count(bos) == wanted
    assert tokenizer.encode_prompt("<s>The fox").count(bos) == 1
    assert tokenizer.encode_prompt("").count(bos) == wanted


def test_end_tokens_are_the_union_of_every_declaration(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer(
        **{
            "tokenizer_config.json": {"eos_token": {"content": "<|eot|>", "special": True}},
            "special_tokens_map.json": {"eos_token": "<end_of_turn>", "unk_token": "not there"},
            "generation_config.json": {"eos_token_id": [5, 6, 10**9]},
        }
    )
    tokenizer = Tokenizer.load(folder, make_spec(eos=("</s>", 7)))
    texts = ("</s>", "<|eot|>", "<end_of_turn>")
    assert tokenizer.end_ids == {5, 6, 7, *map(tokenizer.token_id, texts)}
    assert tokenizer.eos_id == tokenizer.token_id("</s>")
    alone = Tokenizer.load(save_tokenizer(**{"generation_config.json": {"eos_token_id": 5}}), make_spec(eos=()))
    assert alone.end_ids == {5}
    assert alone.eos_id == 5


def test_texts_for_templates_come_from_the_metadata_first(save_tokenizer: Save, make_spec: Spec) -> None:
    config = {"bos_token": "<|im_start|>", "eos_token": "<|eot|>", "pad_token": "[PAD]", "unk_token": "<unk>"}
    folder = save_tokenizer(**{"tokenizer_config.json": config})
    texts = Tokenizer.load(folder, make_spec()).template_texts()
    assert texts == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "[PAD]", "unk_token": "<unk>"}


def test_declared_tokens_that_are_ordinary_added_ones_become_control_tokens(
    save_tokenizer: Save, make_spec: Spec
) -> None:
    tokenizer = Tokenizer.load(save_tokenizer(), make_spec(eos=("</think>",)))
    end = tokenizer.token_id("</think>")
    assert end in tokenizer.special_ids
    assert end not in tokenizer.encode_text("a</think>", allow_special=False)
    assert tokenizer.encode_text("a</think>", allow_special=True)[-1] == end
    assert tokenizer.decode([end]) == ""


def test_truncation_and_padding_of_the_file_are_off(save_tokenizer: Save, make_spec: Spec) -> None:
    def limit(built: tokenizers.Tokenizer) -> None:
        built.enable_truncation(3)
        built.enable_padding(length=64)

    tokenizer = Tokenizer.load(save_tokenizer(change=limit), make_spec())
    for allow in (False, True):
        ids = tokenizer.encode_text("The quick brown fox jumps", allow_special=allow)
        assert tokenizer.decode(ids) == "The quick brown fox jumps"
        assert len(ids) < 64


def test_ids_texts_and_sizes(byte_tokenizer: Tokenizer) -> None:
    assert byte_tokenizer.vocab_size == byte_tokenizer.highest_id + 1
    assert byte_tokenizer.id_to_token(byte_tokenizer.token_id("</s>")) == "</s>"
    assert byte_tokenizer.token_to_id("nothing of the kind") is None
    for outside in (-1, byte_tokenizer.vocab_size, 1 << 40):
        assert byte_tokenizer.id_to_token(outside) is None
    assert byte_tokenizer.decode([byte_tokenizer.vocab_size, byte_tokenizer.vocab_size + 5]) == ""
    with pytest.raises(PackageError, match="has no token") as raised:
        byte_tokenizer.token_id("<|im_ends|>")
    assert raised.value.hint == "did you mean '<|im_end|>'?"


def test_half_a_surrogate_pair_is_refused(byte_tokenizer: Tokenizer) -> None:
    for allow in (False, True):
        with pytest.raises(RequestError, match="character 2"):
            byte_tokenizer.encode_text("ab\ud83d", allow_special=allow)


def test_threads_share_a_tokenizer(byte_tokenizer: Tokenizer) -> None:
    texts = [f"The {index} fox</s> jumps" for index in range(200)]

    def both(text: str) -> tuple[tuple[int, ...], ...]:
        return tuple(byte_tokenizer.encode_text(text, allow_special=allow) for allow in (False, True))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(both, texts)) == [both(text) for text in texts]


@pytest.mark.parametrize(
    ("fields", "code", "words", "hint"),
    [
        ({"eos": ("<|im_ends|>",)}, "tokenizer.token_unknown", "eos", "did you mean '<|im_end|>'?"),
        ({"bos": "<S>"}, "tokenizer.token_unknown", "bos", "did you mean '<s>'?"),
        ({"pad": "nothing like it"}, "tokenizer.token_unknown", "pad", ""),
        ({"eos": (99_999,)}, "tokenizer.token_range", "id 99999", "ids are 0 to"),
        ({"pad": -1}, "tokenizer.token_range", "id -1", "ids are 0 to"),
        ({"bos": None, "add_bos": True}, "tokenizer.bos_missing", "add_bos", "declare 'bos'"),
        ({"file": "other.json"}, "path.missing", "other.json", ""),
        ({"kind": "sentencepiece"}, "tokenizer.kind", "sentencepiece", "use kind 'tokenizers'"),
    ],
)
def test_faults_of_the_metadata_are_named(
    fields: dict[str, Any], code: str, words: str, hint: str, save_tokenizer: Save, make_spec: Spec
) -> None:
    found = problems_of(save_tokenizer(), make_spec(**fields))
    assert [problem.code for problem in found] == [code]
    assert words in found[0].message
    assert found[0].hint.startswith(hint)
    assert (found[0].at.line, found[0].at.path.partition(".")[0]) == (7, "tokenizer")
    with pytest.raises(PackageInvalidError) as raised:
        Tokenizer.load(save_tokenizer(), make_spec(**fields))
    assert [problem.code for problem in raised.value.problems] == [code]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "EOF"),
        ("[1, 2]", "no usable tokenizer"),
        ("{}", "no usable tokenizer"),
        ('{"model": {"type": "Magic"}}', "no usable tokenizer"),
        ('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}', "out of vocabulary"),
        ("\x00\xff", "no usable tokenizer"),
    ],
)
def test_a_broken_tokenizer_file_is_named(content: str, words: str, tmp_path: Path, make_spec: Spec) -> None:
    (tmp_path / "tokenizer.json").write_text(content, encoding="latin-1")
    found = problems_of(tmp_path, make_spec())
    assert [(problem.code, problem.at.file) for problem in found] == [("tokenizer.file", "tokenizer.json")]
    assert words in found[0].message


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json", "generation_config.json"])
@pytest.mark.parametrize(("content", "line"), [('{\n"a": 1,\n}', 3), ("[1]", 0), ("\xff", 0)])
def test_a_broken_file_beside_it_is_named(
    name: str, content: str, line: int, save_tokenizer: Save, make_spec: Spec
) -> None:
    folder = save_tokenizer()
    (folder / name).write_text(content, encoding="latin-1")
    found = problems_of(folder, make_spec())
    assert [(problem.code, problem.at.file, problem.at.line) for problem in found] == [("tokenizer.file", name, line)]


def test_a_file_beside_it_may_not_lead_out_of_the_package(
    save_tokenizer: Save, make_spec: Spec, tmp_path: Path
) -> None:
    folder = save_tokenizer()
    (tmp_path / "secret.json").write_text(json.dumps({"eos_token": "<s>"}))
    (folder / "tokenizer_config.json").symlink_to(tmp_path / "secret.json")
    assert [problem.code for problem in problems_of(folder, make_spec())] == ["path.outside"]


def test_a_vocabulary_with_gaps_is_refused_where_they_would_matter(tmp_path: Path, make_spec: Spec) -> None:
    vocabulary = {"a": 0, "b": 1, "c": 4, "d": 5}
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="a"))
    built.save(str(tmp_path / "tokenizer.json"))
    found = problems_of(tmp_path, make_spec(bos=None, eos=("d",)))
    assert [problem.code for problem in found] == ["tokenizer.file"]
    assert "gaps" in found[0].message


@pytest.mark.parametrize("allow_special", [True, False])
def test_words_that_no_token_stands_for_are_the_requests_fault(
    tmp_path: Path, make_spec: Spec, allow_special: bool
) -> None:
    model = tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="<unk>")
    built = tokenizers.Tokenizer(model)
    built.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    built.save(str(tmp_path / "tokenizer.json"))
    tokenizer = read_tokenizer(tmp_path, make_spec(), Problems())
    assert tokenizer is not None
    assert tokenizer.encode_text("a b", allow_special=allow_special) == (0, 1)
    with pytest.raises(RequestError, match="cannot encode this text") as caught:
        tokenizer.encode_text("a c", allow_special=allow_special)
    assert "a token for what is unknown" in (caught.value.hint or "")
    with pytest.raises(RequestError, match="cannot encode this text"):
        tokenizer.encode_whole("c", complete=True)

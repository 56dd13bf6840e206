"""Text inputs: fields made on demand, post-processors, lengths, lists of texts, optional texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

import genai_pipeline as gp
from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.load import load_package
from genai_pipeline.preprocess.prompts import PromptReader
from genai_pipeline.preprocess.text_inputs import loop_texts, read_fields
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.testing import write_package
from genai_pipeline.testing.media import write_towers

MASKS = frozenset({"prompt.mask", "prompt.types", "prompt.offsets"})
Reader = Callable[..., PromptReader]


def bert_like(folder: Path, **state: Any) -> Path:
    """A tokenizer whose post-processor puts [CLS] and [SEP] around every text."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "sea", "is", "##s", "blue", "."]
    built = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    built.normalizer = tokenizers.normalizers.BertNormalizer()
    built.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    built.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    built.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair=None, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    file = folder / "tokenizer.json"
    file.write_text(json.dumps({**json.loads(built.to_str()), **state}), encoding="utf-8")
    return file


@pytest.fixture
def towers(tmp_path: Path) -> Reader:
    """Makes the reader of the package of two towers with a tokenizer like BERT's; ``tokenizer`` adds to its entry."""

    def make(read: frozenset[str] = MASKS, prompt: Any = None, **tokenizer: Any) -> PromptReader:
        def edit(metadata: dict[str, Any]) -> None:
            metadata["tokenizer"].update(tokenizer)
            metadata["inputs"]["prompt"].update(prompt or {})

        package = write_towers(tmp_path / "towers", edit=edit)
        bert_like(package.path)
        spec, problems = load_package(package)
        assert spec is not None, problems
        return PromptReader(spec, {"default": Tokenizer.load(spec.root, spec.tokenizers["default"])}, read)

    return make


TEXTS = ("The sea is blue.", "", "seas", "xyz the [SEP] sea", "the " * 9)


def test_texts_are_what_the_tokenizers_own_encode_gives(towers: Reader, tmp_path: Path) -> None:
    values = towers().inputs({"prompt": list(TEXTS)})
    own = tokenizers.Tokenizer.from_file(str(tmp_path / "towers" / "tokenizer.json"))
    for index, text in enumerate(TEXTS):
        encoding = own.encode(text)
        assert values["prompt.tokens"][index] == tuple(encoding.ids)
        assert values["prompt.length"][index] == len(encoding.ids)
        assert values["prompt.mask"][index].tolist() == encoding.attention_mask
        assert values["prompt.types"][index].tolist() == encoding.type_ids
        assert values["prompt.offsets"][index].tolist() == [list(pair) for pair in encoding.offsets]
        assert values["prompt"][index]["text"] == values["prompt.text"][index] == text
        assert all(values[f"prompt.{name}"][index].dtype == np.int64 for name in ("mask", "types", "offsets"))


@pytest.mark.parametrize("most", [1, 2, 3, 5, 40])
def test_cut_texts_keep_the_tokens_around_them(towers: Reader, tmp_path: Path, most: int) -> None:
    values = towers(truncate=most).inputs({"prompt": list(TEXTS)})
    own = tokenizers.Tokenizer.from_file(str(tmp_path / "towers" / "tokenizer.json"))
    if most >= 2:
        own.enable_truncation(most)
        assert values["prompt.tokens"] == [tuple(own.encode(text).ids) for text in TEXTS]
    else:
        assert values["prompt.tokens"] == [(2, 3)] * len(TEXTS)


def test_padded_texts_say_how_long_they_were(towers: Reader) -> None:
    values = towers(pad="[PAD]", pad_to=8, truncate=8).inputs({"prompt": ["the sea", "the " * 20]})
    assert values["prompt.tokens"][0] == (2, 4, 5, 3, 0, 0, 0, 0)
    assert values["prompt.mask"][0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert values["prompt.types"][0].tolist() == [0] * 8
    assert values["prompt.offsets"][0].tolist() == [[0, 0], [0, 3], [4, 7], *[[0, 0]] * 5]
    assert values["prompt.length"] == [4, 8]
    assert {len(tokens) for tokens in values["prompt.tokens"]} == {8}


def test_what_does_not_fit_the_padded_length_is_refused_unless_it_is_cut(towers: Reader) -> None:
    with pytest.raises(RequestError, match="prompt has 11 tokens, and every text of it has 8 at most") as caught:
        towers(pad="[PAD]", pad_to=8).inputs({"prompt": "the " * 9})
    assert caught.value.param == "prompt"


def test_fields_are_made_only_when_something_reads_them(towers: Reader) -> None:
    values = towers(read=frozenset({"prompt.mask"})).inputs({"prompt": "the sea"})
    assert {key for key in values if key.startswith("prompt")} == {
        "prompt",
        "prompt.text",
        "prompt.tokens",
        "prompt.length",
        "prompt.mask",
    }


def test_a_list_takes_one_text_a_list_of_them_and_none(towers: Reader) -> None:
    reader = towers(prompt={"max_items": 3, "min_items": 1})
    np.testing.assert_equal(reader.inputs({"prompt": "sea"}), reader.prompt("sea"))
    assert reader.inputs({"prompt": ["sea", "is"]})["prompt.length"] == [3, 3]
    assert reader.inputs({})["prompt.tokens"] == reader.inputs({})["prompt"] == []
    for given, says in ((["a"] * 4, "at most 3"), ([], "at least 1"), ({"a": 1}, "a list of strings")):
        with pytest.raises(RequestError, match=says) as caught:
            reader.inputs({"prompt": given})
        assert caught.value.param == "prompt"
    with pytest.raises(RequestError, match=r"prompt\[1\] must be a string, not int") as caught:
        reader.inputs({"prompt": ["a", 5]})
    assert caught.value.param == "prompt[1]"


def test_a_required_list_is_required(towers: Reader) -> None:
    with pytest.raises(RequestError, match="input 'prompt' is required"):
        towers(prompt={"required": True}).inputs({})


def test_add_bos_false_leaves_texts_alone(towers: Reader) -> None:
    assert towers(add_bos=False).inputs({"prompt": "the sea"})["prompt.tokens"] == [(4, 5)]


@pytest.mark.parametrize("add_bos", [False, True])
def test_prompts_of_loops_are_as_ever(tmp_path: Path, add_bos: bool) -> None:
    package = write_package(tmp_path / "tiny", "kv", add_bos=add_bos)
    spec, _ = load_package(package)
    assert spec is not None
    tokenizer = Tokenizer.load(spec.root, spec.tokenizers["default"])
    reader = PromptReader(spec, {"default": tokenizer}, MASKS - {"prompt.offsets"})
    assert loop_texts(spec) == {"prompt"}
    values = reader.prompt("a <|im_start|> b", raw=True)
    assert values["prompt.tokens"] == tokenizer.encode_prompt("a <|im_start|> b")
    assert values["prompt.mask"].tolist() == [1] * values["prompt.length"]
    chat = reader.prompt("hello")
    assert chat["prompt.tokens"][-len(package.vocabulary.chat_prompt(("user", "hello"))) :] == tuple(
        package.vocabulary.chat_prompt(("user", "hello"))
    )
    assert chat["prompt.types"].tolist() == [0] * chat["prompt.length"]


def test_offsets_are_of_plain_text_only(tmp_path: Path) -> None:
    package = write_package(tmp_path / "tiny", "kv", add_bos=True)
    spec, _ = load_package(package)
    assert spec is not None
    reader = PromptReader(spec, {"default": Tokenizer.load(spec.root, spec.tokenizers["default"])}, MASKS)
    values = reader.prompt("ab", raw=True)
    assert values["prompt.offsets"].tolist()[-2:] == [[0, 1], [1, 2]]
    assert len(values["prompt.offsets"]) == values["prompt.length"]
    with pytest.raises(RequestError, match="places of its characters"):
        reader.prompt("ab")


def test_prompts_of_loops_are_cut_too(tmp_path: Path) -> None:
    spec, _ = load_package(write_package(tmp_path, "kv", edit=lambda m: m["tokenizer"].update(truncate=3)))
    assert spec is not None
    reader = PromptReader(spec, {"default": Tokenizer.load(spec.root, spec.tokenizers["default"])})
    assert len(reader.prompt("abcdef", raw=True)["prompt.tokens"]) == 3
    assert reader.prompt(tokens=[7, 8, 9, 10])["prompt.tokens"] == (7, 8, 9)


def test_what_is_read_is_found_in_every_scope(tmp_path: Path) -> None:
    plan = gp.compile(gp.validate(write_towers(tmp_path))[0])
    assert {"prompt", "prompt.tokens", "prompt.mask", "audio.samples", "audio"} <= read_fields(plan)
    assert "prompt.types" not in read_fields(plan)

"""The tiny tokenizers: the written files do what the Python mirror says."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from genai_pipeline.testing import byte_level, words

VOCABULARIES = {"words": words(" P", " Q", "O P", "a\\b", "caf\u00e9", size=160), "bytes": byte_level()}
PIECES = [*"abcO P\n\\[]^-<|é한", "\U0001f389", " P", "user", "<s>", "<|im_end|>", "w150"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=20).map("".join)


@pytest.fixture(scope="module", params=VOCABULARIES)
def pair(request, tmp_path_factory):
    """A vocabulary and the tokenizer the library makes of its file."""
    vocabulary = VOCABULARIES[request.param]
    return vocabulary, Tokenizer.from_file(str(vocabulary.write(tmp_path_factory.mktemp("t") / "tokenizer.json")))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_library_and_mirror_agree(pair, text):
    vocabulary, tokenizer = pair
    tokenizer.encode_special_tokens = False
    ids = vocabulary.encode(text, parse_special=True)
    assert tokenizer.encode(text, add_special_tokens=False).ids == ids
    assert tokenizer.decode(ids) == vocabulary.decode(ids)
    tokenizer.encode_special_tokens = True
    assert tokenizer.encode(text, add_special_tokens=False).ids == vocabulary.encode(text)


def test_every_token_is_its_own_text():
    vocabulary = VOCABULARIES["words"]
    for token in vocabulary.tokens[vocabulary.specials :]:
        assert vocabulary.encode(token) == [vocabulary.id(token)]


def test_an_emoji_is_four_tokens():
    vocabulary = byte_level()
    ids = vocabulary.encode("\U0001f389")
    assert len(ids) == 4
    assert [vocabulary.decode(ids[:count]) for count in (1, 2, 3)] == ["\ufffd"] * 3
    assert vocabulary.decode(ids) == "\U0001f389"


def test_bos_from_the_tokenizer(tmp_path):
    path = words().write(tmp_path / "tokenizer.json", add_bos=True)
    tokenizer = Tokenizer.from_file(str(path))
    assert tokenizer.encode("a").ids == [0, *words().encode("a")]
    assert tokenizer.encode("a", add_special_tokens=False).ids == words().encode("a")


def test_chat_prompt_is_what_the_template_renders():
    vocabulary = words()
    ids = vocabulary.chat_prompt(("system", "be brief"), ("user", "hi"))
    text = "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert ids == vocabulary.encode(text, parse_special=True)


def test_size_is_filled_up_or_refused():
    assert len(words(size=150)) == 150
    assert words(size=150).tokens[-1] == "w149"
    with pytest.raises(ValueError, match="less than"):
        words(size=50)


def test_files_are_plain_json():
    assert json.loads(json.dumps(byte_level().to_json()))["model"]["type"] == "BPE"

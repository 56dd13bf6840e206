"""write_package: what is on disk, and what is refused."""

from __future__ import annotations

import os

import pytest
import yaml

import genai_pipeline as gp
from genai_pipeline.testing import KINDS, KindOptions, metadata_text, write_draft, write_package


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_writes_a_whole_package(tmp_path, kind):
    options = {"update": "append"} if "update" in KINDS[kind].uses else {}
    package = write_package(tmp_path / "new" / "folder", kind, **options)
    metadata = yaml.safe_load((package.path / "inference_metadata.yaml").read_text())
    models = [component["model"] for component in metadata["components"].values()]
    assert sorted(os.listdir(package)) == sorted(
        ["chat_template.jinja", "inference_metadata.yaml", "tokenizer.json", *models]
    )
    prompt = package.vocabulary.chat_prompt(("user", "hello"))
    assert len(package.expected(prompt, 5)) == 5
    assert all(0 <= token < len(package.vocabulary) for token in package.expected(prompt, 5))


@pytest.mark.parametrize("update", ["append", "in_place", "scatter"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_valid(tmp_path, kind, update):
    options = {"update": update} if "update" in KINDS[kind].uses else {}
    spec, problems = gp.validate(write_package(tmp_path, kind, **options).path)
    assert spec is not None
    assert {problem.code for problem in problems} <= {"capability.missing"}  # what this version cannot run yet


def test_scripts_end_with_the_end_token(tmp_path):
    package = write_package(tmp_path, "script", scripts={"a": ["x", "<|im_end|>"]})
    prompt = package.vocabulary.chat_prompt(("user", "b"))
    assert package.answer_text(prompt, 20) == "O P Q R"
    assert len(package.expected(prompt, 20)) == 20
    assert package.answer_text(package.vocabulary.encode("a"), 20) == "x"
    assert package.answer_text(prompt, 2) == "O P"


def test_a_script_may_go_on_until_the_limit(tmp_path):
    package = write_package(tmp_path, "script", script=["x", "y"], end=None)
    assert package.answer_text([package.vocabulary.id("<|go|>")], 4) == "xyyy"


def test_bytes_emit_their_text(tmp_path):
    package = write_package(tmp_path, "bytes", text="한\U0001f389")
    for prompt in ([package.vocabulary.id("<|go|>")], package.vocabulary.chat_prompt(("user", "é"))):
        assert package.answer_text(prompt, 20) == "한\U0001f389"
        assert len(package.answer(prompt, 20)) == 7


def test_kv_ends_where_asked(tmp_path):
    package = write_package(tmp_path, "kv", end_at=9)
    prompt = [10, 11, 12]
    assert package.expected(prompt, 8)[7] == package.vocabulary.id("</s>")
    assert len(package.answer(prompt, 50)) == 7


def test_external_data_and_edits(tmp_path):
    def edit(metadata: dict) -> None:
        metadata["limits"]["context_length"] = 7
        del metadata["tokenizer"]["eos"]

    package = write_package(tmp_path, "kv", external_data=True, chat_template=None, name="mine", edit=edit)
    assert (package.path / "model.onnx.data").stat().st_size > 1000
    assert not (package.path / "chat_template.jinja").exists()
    metadata = yaml.safe_load((package.path / "inference_metadata.yaml").read_text())
    assert metadata["name"] == "mine"
    assert metadata["limits"] == {"context_length": 7}
    assert metadata["tokenizer"] == {"file": "tokenizer.json"}


def test_what_has_no_use_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"unknown kind 'kvs'.*kv"):
        write_package(tmp_path, "kvs")
    with pytest.raises(ValueError, match="no use for layers"):
        write_package(tmp_path, "flat", layers=3)
    with pytest.raises(TypeError, match="depth"):
        write_package(tmp_path, "kv", depth=3)
    with pytest.raises(ValueError, match="one dtype"):
        write_package(tmp_path, "kv", dtype="float32", value_dtype="float16")
    assert os.listdir(tmp_path) == []


def test_every_option_has_a_use():
    used = frozenset().union(*(kind.uses for kind in KINDS.values()))
    assert used == set(KindOptions.__dataclass_fields__)


def test_metadata_text_reads_back():
    value = {
        "text": ["yes", "no", "null", "1.5", "a: b", "- x", "#", "", "<s>", "tab\t\u00e9", "on", "{x}", "true"],
        "numbers": [1, 1.5, -2, True, False, None],
        "deep": {
            "list": [{"a": {"b": {"c": 1}}}, {"d": [1, [2]]}],
            "empty": {},
            "none": [],
            "bare": [{}],
            "mixed": [{"a": 1}, {}],
        },
        "odd key {i}": {"x": 1},
        "many": {"a": 1, "b": 2, "c": 3, "d": {}},
    }
    assert yaml.safe_load(metadata_text(value)) == value


def test_a_draft_has_the_same_tokens_and_agrees_as_far_as_it_is_the_same(tmp_path):
    package = write_package(tmp_path / "kv", "kv", update="append", layers=3)
    same = write_draft(tmp_path / "same", package)
    short = write_draft(tmp_path / "short", package, layers=1)
    prompt = [20, 21, 22]
    assert same.expected(prompt, 8) == package.expected(prompt, 8) != short.expected(prompt, 8)
    assert (same.path / "tokenizer.json").read_bytes() == (package.path / "tokenizer.json").read_bytes()
    script = write_package(tmp_path / "script", "script", script=["a", "b", "c"])
    other = write_draft(tmp_path / "other", script, script=["a", "c", "c"])
    start = [package.vocabulary.id("<|go|>")]
    assert [a == b for a, b in zip(script.expected(start, 3), other.expected(start, 3), strict=True)] == [
        True,
        False,
        True,
    ]
    with pytest.raises(ValueError, match="other tokens"):
        write_draft(tmp_path / "wrong", script, script=["a", " dog"])

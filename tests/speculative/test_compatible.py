"""A draft package must know the same tokens under the same ids; what differs is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.checking import check_package
from genai_pipeline.errors import DraftPackageError
from genai_pipeline.graph.plan import ExecutionPlan
from genai_pipeline.speculative.compatible import Ids, check_draft_package, differences
from genai_pipeline.testing import GraphBuilder, TinyPackage, write_package

Edit = Callable[[dict[str, Any]], object]


def plan_of(package: TinyPackage) -> ExecutionPlan:
    plan = check_package(package.path).plan
    assert plan is not None
    return plan


def check(target: TinyPackage, draft: TinyPackage, contexts: tuple[int, int] = (256, 256)) -> str:
    plan = plan_of(target)
    return check_draft_package(plan, plan.stage("generate"), plan_of(draft), contexts).id


def edit_tokenizer(package: TinyPackage, edit: Edit) -> TinyPackage:
    file = package.path / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    edit(content)
    file.write_text(json.dumps(content), encoding="utf-8")
    return package


@pytest.fixture
def packages(tmp_path: Path) -> tuple[TinyPackage, TinyPackage]:
    return write_package(tmp_path / "target", "bytes"), write_package(tmp_path / "draft", "bytes", name="small")


def test_packages_with_one_tokenizer_fit(tmp_path: Path, packages: tuple[TinyPackage, TinyPackage]) -> None:
    assert check(*packages) == "generate"
    assert check(write_package(tmp_path / "a", "kv"), write_package(tmp_path / "b", "table")) == "generate"


def test_end_tokens_may_differ(tmp_path: Path, packages: tuple[TinyPackage, TinyPackage]) -> None:
    other = write_package(tmp_path / "other", "bytes", eos=["</s>"])
    assert check(packages[0], other) == "generate"


def swap_words(content: dict[str, Any]) -> None:
    vocabulary = content["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]


def rename_added(content: dict[str, Any]) -> None:
    content["added_tokens"][1]["special"] = not content["added_tokens"][1]["special"]


@pytest.mark.parametrize(("edit", "said"), [(swap_words, "token "), (rename_added, "added token ")])
def test_other_tokens_are_refused_with_the_first_that_differs(
    packages: tuple[TinyPackage, TinyPackage], edit: Edit, said: str
) -> None:
    target, draft = packages
    with pytest.raises(DraftPackageError) as caught:
        check(target, edit_tokenizer(draft, edit))
    assert f"their tokenizers differ in {said}" in caught.value.message
    assert "'small' cannot draft for 'tiny-bytes'" in caught.value.message
    assert caught.value.code == "draft_package_unfit"
    assert caught.value.hint


def test_merges_are_compared_by_content() -> None:
    ids = Ids({0: "a", 1: "b"}, (("a", "b"), ("b", "a")), {})
    assert list(differences(ids, ids)) == []
    assert list(differences(ids, Ids(ids.vocabulary, (("b", "a"), ("a", "b")), {}))) == ["merge 0: 'a b' and 'b a'"]
    assert list(differences(ids, Ids(ids.vocabulary, (("a", "b"),), {}))) == ["the number of merges: 2 and 1"]


def test_a_word_more_is_a_difference() -> None:
    more = Ids({0: "a", 1: "b"}, (), {1: ("b", True)})
    assert list(differences(Ids({0: "a"}, (), {}), more)) == [
        "token 1: none and 'b'",
        "added token 1: none and 'b' (control)",
    ]


def test_a_context_that_is_too_short_is_refused(packages: tuple[TinyPackage, TinyPackage]) -> None:
    assert check(*packages, contexts=(128, 256)) == "generate"
    with pytest.raises(DraftPackageError, match="holds 128 tokens") as caught:
        check(*packages, contexts=(256, 128))
    assert "context_length=128" in caught.value.hint


def shifted(size: int) -> GraphBuilder:
    """``input_ids`` and ``shift`` -> ``logits``: the next token is the last one plus the shift."""
    b = GraphBuilder("shifted")
    ids, shift = b.input("input_ids", "int64", ["batch", "sequence"]), b.input("shift", "int64", [])
    moved = b.op("Mod", b.op("Add", ids, shift), size)
    b.output(
        "logits", b.op("OneHot", moved, size, np.array([0, 1], np.float32)), "float32", ["batch", "sequence", size]
    )
    return b


def add_stage(metadata: dict[str, Any]) -> None:
    metadata["components"]["other"] = {"model": "other.onnx"}
    inputs = {"input_ids": "prompt.tokens", "shift": 1}
    metadata["stages"].append({"id": "again", "run": "other", "inputs": inputs})
    metadata["outputs"]["more"] = {"modality": "tensor", "value": "again.logits"}


def read_parameter(metadata: dict[str, Any]) -> None:
    metadata["inputs"]["parameters"] = {"shift": {"type": "integer", "default": 1}}
    metadata["components"]["decoder"] = {"model": "other.onnx"}
    metadata["stages"][0]["body"][0]["inputs"]["shift"] = "parameters.shift"


@pytest.mark.parametrize(
    ("edit", "said"),
    [(add_stage, "2 stages, 1 of them decode loops"), (read_parameter, "reads parameters.shift besides its tokens")],
)
def test_a_package_that_is_more_than_a_text_model_is_refused(tmp_path: Path, edit: Edit, said: str) -> None:
    target = write_package(tmp_path / "target", "table")
    (tmp_path / "draft").mkdir()
    shifted(len(target.vocabulary)).save(tmp_path / "draft" / "other.onnx")
    with pytest.raises(DraftPackageError, match=said):
        check(target, write_package(tmp_path / "draft", "table", edit=edit))

"""Where drafts come from: the load option, what the package declares, and bounds that are given in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.config import LoadOptions
from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import SpeculativeSpec
from genai_pipeline.problems import Location
from genai_pipeline.speculative.options import DraftKind, LookupDrafts, PackageDrafts, draft_kind
from genai_pipeline.testing import write_package
from genai_pipeline.types import Usage

AT = Location("package.yaml")


def declared(**fields: Any) -> SpeculativeSpec:
    return SpeculativeSpec(AT, **fields)


@pytest.mark.parametrize(
    ("option", "spec", "expected"),
    [
        ("auto", None, None),
        ("auto", declared(draft="small"), PackageDrafts("small")),
        ("auto", declared(lookup={}), LookupDrafts()),
        ("off", declared(draft="small"), None),
        ("lookup", None, LookupDrafts()),
        ("lookup", declared(draft="small"), LookupDrafts()),
        ("lookup", declared(lookup={"tokens": 3}), LookupDrafts(tokens=3)),
        ("/models/draft", declared(lookup={}), PackageDrafts("/models/draft")),
    ],
)
def test_the_option_comes_first_and_auto_is_what_the_package_says(
    option: str, spec: SpeculativeSpec | None, expected: DraftKind
) -> None:
    assert draft_kind(option, spec) == expected


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        ({"min_match": 3}, (3, 4)),
        ({"min_match": 6}, (6, 6)),
        ({"max_match": 1}, (1, 1)),
        ({"max_match": 9}, (2, 9)),
        ({"min_match": 1, "max_match": 2}, (1, 2)),
    ],
)
def test_a_bound_that_is_not_given_moves_with_the_one_that_is(given: dict[str, int], bounds: tuple[int, int]) -> None:
    kind = draft_kind("auto", declared(lookup=given))
    assert isinstance(kind, LookupDrafts)
    assert (kind.min_match, kind.max_match) == bounds


def test_the_load_option_takes_words_and_paths(tmp_path: Path) -> None:
    assert LoadOptions.of().draft == "auto"
    assert LoadOptions.of(draft=tmp_path).draft == str(tmp_path)
    for wrong in (3, None, "", True, ["lookup"]):
        with pytest.raises(OptionError) as caught:
            LoadOptions.of(draft=wrong)  # type: ignore[arg-type]
        assert caught.value.param == "draft"
        assert "off" in caught.value.hint


@pytest.mark.parametrize("speculative", [{"lookup": {"min_match": 2}}, {"draft": "smollm2-135m"}])
def test_a_package_may_declare_drafts(tmp_path: Path, speculative: dict[str, Any]) -> None:
    package = write_package(tmp_path, "table", edit=lambda metadata: metadata.update(speculative=speculative))
    spec, problems = gp.validate(package.path)
    assert problems == ()
    assert spec is not None
    assert draft_kind("auto", spec.speculative) is not None


def test_drafts_of_a_head_of_the_model_are_refused_by_name(tmp_path: Path) -> None:
    propose = {"body": [{"run": "decoder", "inputs": {"input_ids": "loop.tokens"}}], "logits": "decoder.logits"}
    package = write_package(tmp_path, "table", edit=lambda m: m.update(speculative={"propose": propose}))
    _, problems = gp.validate(package.path)
    assert [p.at.path for p in problems if p.code == "capability.missing"] == ["speculative.propose"]


def test_usage_counts_drafts_only_where_there_were_any() -> None:
    assert Usage(3, 4).to_dict() == {"prompt_tokens": 3, "completion_tokens": 4, "cached_tokens": 0}
    assert Usage(3, 4, 0, 9, 2).to_dict() == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "cached_tokens": 0,
        "drafted_tokens": 9,
        "accepted_tokens": 2,
    }

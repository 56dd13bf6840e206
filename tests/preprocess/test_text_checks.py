"""The validation layer for tokenizers and templates finds every fault once, and leaves others' faults to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from genai_pipeline.metadata.model import DecodeSpec, PackageSpec, StageSpec, StopSpec, TokenizerSpec
from genai_pipeline.preprocess.text_checks import check_text
from genai_pipeline.problems import Location, Problems

Save = Callable[..., Path]
Spec = Callable[..., TokenizerSpec]
AT = Location("inference_metadata.yaml", 20, 3, "stages[0]")


def decode_stage(**fields: Any) -> StageSpec:
    """A decode loop."""
    return StageSpec(AT, "generate", "decode", decode=DecodeSpec(AT, None, **fields))


def codes(
    folder: Path, *specs: TokenizerSpec, stages: tuple[StageSpec, ...] = (), sizes: dict[str, int] | None = None
) -> list[str]:
    """Codes of what is found in a package, sorted."""
    package = PackageSpec(
        root=folder,
        file=folder / "inference_metadata.yaml",
        at=AT,
        schema_version="1",
        name="p",
        tokenizers={spec.name: spec for spec in specs},
        stages=stages,
    )
    problems = Problems()
    check_text(package, sizes or {}, problems)
    return sorted(problem.code for problem in problems)


def test_a_good_package_has_no_problems(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer()
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    stage = decode_stage(suppress=("<s>", 3), stop=StopSpec(AT, ("</s>",)))
    assert codes(folder, make_spec(), stages=(stage,), sizes={"generate": 100_000}) == []
    assert codes(folder) == []


def test_all_faults_are_found_at_once(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer()
    (folder / "chat_template.jinja").write_text("{% if %}")
    stage = decode_stage(suppress=("nowhere to be found",), stop=StopSpec(AT, (10**6,)))
    outer = StageSpec(AT, "group", "group", body=(stage,))
    spec = make_spec(bos="<ss>", eos=("</s>", "</ss>"))
    assert codes(folder, spec, stages=(outer,), sizes={"generate": 8}) == [
        "template.syntax",
        "tokenizer.token_range",
        *["tokenizer.token_unknown"] * 3,
        "tokenizer.vocabulary",
    ]


def test_a_loop_is_checked_against_its_own_tokenizer(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer()
    specs = (make_spec(name="text"), make_spec(name="audio"))
    assert codes(folder, *specs, stages=(decode_stage(tokenizer="audio", suppress=("nowhere",)),)) == [
        "tokenizer.token_unknown"
    ]
    assert codes(folder, *specs, stages=(decode_stage(suppress=(10**6,)),)) == []


def test_missing_files_and_other_kinds_are_left_to_their_layers(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer()
    for fields in ({"file": "gone.json"}, {"file": "../x"}, {"chat_template": "gone"}, {"kind": "sentencepiece"}):
        assert codes(folder, make_spec(**fields)) == []


def test_logits_may_be_wider_than_the_tokenizer(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer()
    size = 538
    for columns, expected in ((size - 1, ["tokenizer.vocabulary"]), (size, []), (size + 64, [])):
        assert codes(folder, make_spec(), stages=(decode_stage(),), sizes={"generate": columns}) == expected

"""Components of other packages: everything that is declared there comes along, and what cannot be had is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.checking import check_package
from genai_pipeline.config import LoadOptions
from genai_pipeline.engine.identity import package_identity
from genai_pipeline.errors import PackageNotFoundError
from genai_pipeline.pipeline import Pipeline
from genai_pipeline.problems import Problem
from genai_pipeline.testing.packages import TinyPackage, write_package

Lend = Callable[[str], Path]
BORROWED = {"package": "lender", "component": "decoder"}


@pytest.fixture
def lender(tmp_path: Path) -> TinyPackage:
    """A decoder with its cache."""
    return write_package(tmp_path / "lender", "kv", name="lender")


def borrower(tmp_path: Path, decoder: dict[str, Any], name: str = "borrower") -> Path:
    """The same pipeline without graphs."""

    def edit(metadata: dict[str, Any]) -> None:
        metadata["components"]["decoder"] = decoder

    package = write_package(tmp_path / name, "kv", name=name, edit=edit)
    for model in package.path.glob("*.onnx"):
        model.unlink()
    return package.path


def lend(tmp_path: Path) -> Lend:
    def find(name: str) -> Path:
        if not (tmp_path / name).is_dir():
            raise PackageNotFoundError(f"no package is called '{name}'", hint="look again")
        return tmp_path / name

    return find


def errors(tmp_path: Path, path: Path) -> list[Problem]:
    checked = check_package(path, lend(tmp_path))
    assert checked.plan is None
    return [problem for problem in checked.problems if problem.severity == "error"]


def test_a_borrowed_component_runs_with_its_files_and_its_cache(tmp_path: Path, lender: TinyPackage) -> None:
    checked = check_package(borrower(tmp_path, BORROWED), lend(tmp_path))
    assert checked.problems == ()
    assert checked.plan is not None
    component = checked.plan.components["decoder"]
    assert component.spec.root == lender.path.resolve()
    assert component.bytes_per_token > 0
    prompt = lender.vocabulary.chat_prompt(("user", "hello"))
    with Pipeline(checked.plan, checked.tokenizers, LoadOptions()) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=12).tokens) == lender.answer(prompt, 12)
    assert package_identity(checked.plan)["package"] == "borrower"


def test_its_session_settings_can_be_other_ones(tmp_path: Path, lender: TinyPackage) -> None:
    config = {"session.disable_prepacking": "1"}
    own = check_package(borrower(tmp_path, {**BORROWED, "session": {"config": config}}), lend(tmp_path))
    assert own.spec is not None
    session = own.spec.components["decoder"].session
    assert session is not None
    assert dict(session.config) == config


def test_a_package_may_lend_what_it_has_borrowed(tmp_path: Path, lender: TinyPackage) -> None:
    borrower(tmp_path, BORROWED, "middle")
    checked = check_package(borrower(tmp_path, {**BORROWED, "package": "middle"}), lend(tmp_path))
    assert checked.plan is not None
    assert checked.plan.components["decoder"].spec.root == lender.path.resolve()


def test_state_comes_from_the_component_that_is_borrowed_with_it(tmp_path: Path) -> None:
    lender = write_package(tmp_path / "lender", "cross", name="lender")
    encoder = {"package": "lender", "component": "encoder"}

    def write(name: str, components: dict[str, Any]) -> Path:
        def edit(metadata: dict[str, Any]) -> None:
            metadata["components"] = components
            metadata["stages"][0]["run"] = next(iter(components))

        return write_package(tmp_path / name, "cross", name=name, edit=edit).path

    checked = check_package(write("both", {"listener": encoder, "decoder": BORROWED}), lend(tmp_path))
    assert checked.plan is not None, checked.problems
    with gp.load(lender) as own, Pipeline(checked.plan, checked.tokenizers, LoadOptions()) as pipe:
        assert pipe.generate("abc", max_new_tokens=8).tokens == own.generate("abc", max_new_tokens=8).tokens
    found = errors(tmp_path, write("one", {"listener": {"model": "encoder.onnx"}, "decoder": BORROWED}))
    assert found[0].code == "reference.component"
    assert "takes its state from the component 'encoder' of 'lender'" in found[0].message
    assert found[0].hint == "add a component {package: lender, component: encoder}"


def test_packages_that_borrow_in_a_circle_are_told(tmp_path: Path) -> None:
    borrower(tmp_path, {**BORROWED, "package": "second"}, "first")
    path = borrower(tmp_path, {**BORROWED, "package": "first"}, "second")
    (problem,) = errors(tmp_path, path)
    assert problem.code == "reference.package_circle"
    assert "second, first, second" in problem.message


@pytest.mark.parametrize(
    ("decoder", "code", "path", "words"),
    [
        ({**BORROWED, "package": "lander"}, "reference.package", "package", "no package is called 'lander'"),
        ({**BORROWED, "component": "decode"}, "reference.component", "component", "did you mean 'decoder'?"),
    ],
)
def test_what_cannot_be_borrowed_is_one_problem(
    tmp_path: Path, lender: TinyPackage, decoder: dict[str, Any], code: str, path: str, words: str
) -> None:
    (problem,) = errors(tmp_path, borrower(tmp_path, decoder))
    assert (problem.code, problem.at.path) == (code, f"components.decoder.{path}")
    assert words in f"{problem.message} {problem.hint}"
    assert problem.at.line > 0


def test_a_lender_with_problems_is_named(tmp_path: Path, lender: TinyPackage) -> None:
    metadata = lender.path / "inference_metadata.yaml"
    metadata.write_text(metadata.read_text().replace("name: lender", "nome: lender"))
    (problem,) = errors(tmp_path, borrower(tmp_path, BORROWED))
    assert problem.code == "reference.package"
    assert problem.hint == "genai-pipeline validate lender"


def test_without_a_lender_only_the_cache_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lender: TinyPackage
) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "cache"))
    _, problems = gp.validate(borrower(tmp_path, {**BORROWED, "package": "smollm2-135m"}))
    problem = next(problem for problem in problems if problem.severity == "error")
    assert problem.code == "reference.package"
    assert problem.hint == "genai-pipeline pull smollm2-135m"


def test_what_an_absent_component_would_read_is_not_called_unused(tmp_path: Path) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["components"]["encoder"] = {"package": "absent", "component": "encoder"}

    found = check_package(write_package(tmp_path / "half", "cross", edit=edit).path, lend(tmp_path)).problems
    assert {problem.code for problem in found} == {"reference.package"}

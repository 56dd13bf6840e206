"""Every package of the corpus: broken ones have exactly their expected problems, whole ones have none and run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import genai_pipeline as gp
from genai_pipeline.testing import write_package

HERE = Path(__file__).parent


def folders(kind: str) -> list[Path]:
    return sorted(path for path in (HERE / kind).iterdir() if path.is_dir())


def expected(folder: Path) -> list[dict]:
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))


def name_of(folder: Path) -> str:
    return folder.name


@pytest.mark.parametrize("folder", folders("invalid"), ids=name_of)
def test_one_fault_gives_exactly_its_problems(folder, problems_of):
    assert problems_of(folder) == expected(folder)


@pytest.mark.parametrize("folder", folders("invalid_several"), ids=name_of)
def test_several_faults_are_all_reported(folder, problems_of):
    assert problems_of(folder) == expected(folder)


def test_the_corpus_is_large_and_says_what_it_expects():
    assert len(folders("invalid")) >= 60
    assert all(expected(folder) for folder in [*folders("invalid"), *folders("invalid_several")])
    assert all(len({entry["line"] for entry in expected(folder)}) > 1 for folder in folders("invalid_several"))


@pytest.mark.parametrize("folder", [*folders("invalid"), *folders("invalid_several")], ids=name_of)
def test_problems_can_be_acted_on(folder):
    spec_file = folder / "inference_metadata.yaml"
    lines = len(spec_file.read_bytes().splitlines())
    for problem in gp.validate(folder)[1]:
        assert problem.message
        assert problem.code.count(".") == 1
        if problem.at.file == str(spec_file):
            assert 1 <= problem.at.line <= lines + 1


@pytest.mark.parametrize("folder", folders("valid"), ids=name_of)
def test_whole_packages_have_no_problem(folder):
    spec, problems = gp.validate(folder)
    assert [problem for problem in problems if problem.severity != "note"] == []
    assert spec is not None


RUNNING = {
    "append": ("kv", {"update": "append", "end_at": 30}),
    "bytes": ("bytes", {}),
    "in-place": ("kv", {"update": "in_place", "dtype": "float16"}),
    "recurrent": ("recurrent", {}),
    "scatter": ("kv", {"update": "scatter"}),
    "script": ("script", {"external_data": True}),
    "two-components": ("embeds", {"update": "append"}),
}


@pytest.mark.parametrize("name", RUNNING)
def test_whole_packages_answer_like_their_twins(tmp_path, name):
    kind, options = RUNNING[name]
    twin = write_package(tmp_path, kind, **options)
    prompt = twin.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(HERE / "valid" / name) as pipe:
        result = pipe.generate("hello", max_new_tokens=20, temperature=0)
    assert list(result.tokens) == twin.answer(prompt, 20)
    assert result.text == twin.answer_text(prompt, 20)


def test_nothing_in_a_package_is_run_while_it_is_checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("yaml-python-tag", "expression-hostile"):
        gp.validate(HERE / "invalid" / name)
    assert list(tmp_path.iterdir()) == []

"""``init`` as a command: writes a draft, says what is open, never writes over a file without --force."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from genai_pipeline.testing import write_package

Command = Callable[..., Any]
FILE = "inference_metadata.yaml"


def test_a_folder_of_graphs_becomes_a_package_that_runs(command: Command, tmp_path: Path) -> None:
    package = write_package(tmp_path / "found", "kv")
    (package.path / FILE).unlink()
    (package.path / "config.json").write_text('{"max_position_embeddings": 128}')
    (package.path / "generation_config.json").write_text(json.dumps({"eos_token_id": list(package.end_ids)}))
    ran = command("init", package.path)
    assert (ran.code, ran.out) == (0, f"{package.path / FILE}\n")
    assert "nothing left open" in ran.err
    assert command("validate", package.path).code == 0
    ran = command("run", package.path, "hello", "--max-new-tokens", "4")
    assert ran.code == 0
    assert ran.out.strip()


def test_what_is_left_open_is_said_and_listed_by_validate(command: Command, tmp_path: Path) -> None:
    package = write_package(tmp_path / "found", "kv")
    (package.path / FILE).unlink()
    ran = command("init", package.path)
    assert ran.code == 0
    assert "2 questions open" in ran.err
    ran = command("validate", package.path, "--format", "json")
    assert ran.code == 3
    assert [problem["code"] for problem in json.loads(ran.out)["problems"]] == ["draft.todo", "draft.todo"]
    assert command("run", package.path, "hello").code == 3


def test_a_file_that_is_there_is_kept(command: Command, tmp_path: Path) -> None:
    package = write_package(tmp_path / "found", "kv")
    before = (package.path / FILE).read_text()
    ran = command("init", package.path)
    assert ran.code == 1
    assert "--force" in ran.err
    assert (package.path / FILE).read_text() == before
    assert command("init", package.path, "--force", "--name", "mine").code == 0
    assert "name: mine" in (package.path / FILE).read_text()


def test_a_document_of_another_format_is_imported_or_refused_on_one_screen(command: Command, tmp_path: Path) -> None:
    package = write_package(tmp_path / "source", "kv")
    (package.path / "generation_config.json").write_text(json.dumps({"eos_token_id": list(package.end_ids)}))
    document = {"model": {"attention": {"type": "multi_head"}, "max_sequence_length": 64}}
    (package.path / FILE).write_text(json.dumps(document))
    ran = command("import", "workflow", package.path, tmp_path / "made")
    assert (ran.code, ran.out) == (0, f"{tmp_path / 'made'}\n")
    assert command("validate", tmp_path / "made").code == 0
    (package.path / FILE).write_text(json.dumps({**document, "speculative": {}, "adapters": {}}))
    ran = command("import", "workflow", package.path, tmp_path / "other")
    assert ran.code == 1
    assert "adapters: is not mapped" in ran.err
    assert "speculative: is not mapped" in ran.err
    assert not (tmp_path / "other").exists()

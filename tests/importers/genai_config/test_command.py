"""``genai-pipeline import genai-config``: the folder on stdout, the table on stderr, refusals on one screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.cli.main import run_command

Folders = Callable[..., Any]


def test_the_folder_and_the_table_are_printed(
    genai_folder: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "made"
    assert run_command(["import", "genai-config", str(genai_folder().path), str(target)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{target}\n"
    assert "search.do_sample -> generation.defaults.temperature: 0" in printed.err
    assert "model.vocab_size dropped: the graph's logits have it" in printed.err
    assert run_command(["validate", str(target)]) == 0


def test_a_refusal_is_one_screen(genai_folder: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = genai_folder(edit=lambda config: config["search"].update(min_length=9, num_return_sequences=2))
    assert run_command(["import", "genai-config", str(folder.path), str(tmp_path / "made")]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "search.min_length: is 9" in printed.err
    assert "search.num_return_sequences: is 2" in printed.err
    assert len(printed.err.splitlines()) < 24
    assert not (tmp_path / "made").exists()

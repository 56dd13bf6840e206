"""``pack`` and ``unpack`` as commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.testing import TinyPackage, write_package

Command = Callable[..., Any]


def test_a_package_there_and_back(
    command: Command, tiny: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = command("pack", tiny.path)
    assert (ran.code, ran.out) == (0, "tiny-script.gpack\n")
    ran = command("unpack", "tiny-script.gpack", "out")
    assert (ran.code, ran.out) == (0, "out\n")
    assert "all as their hashes say" in ran.err
    assert command("validate", "out").code == 0
    ran = command("unpack", "tiny-script.gpack")
    assert (ran.code, ran.out) == (0, "tiny-script\n")


def test_refusals_have_their_exit_codes(command: Command, broken: TinyPackage, tmp_path: Path) -> None:
    assert command("pack", broken.path, tmp_path / "a.gpack").code == 3
    (tmp_path / "b.gpack").write_bytes(b"no archive" * 10)
    ran = command("unpack", tmp_path / "b.gpack", tmp_path / "out")
    assert ran.code == 3
    assert "nothing was unpacked" in ran.err
    assert command("pack", tmp_path / "none").code == 2
    assert command("unpack", tmp_path / "none.gpack").code == 2


def test_places_that_cannot_be_written_are_no_fault_of_the_package(command: Command, tmp_path: Path) -> None:
    package = write_package(tmp_path / "sound", "script").path
    (tmp_path / "file").write_text("not a folder")
    for target in (tmp_path / "none" / "a.gpack", tmp_path / "file" / "a.gpack", tmp_path / "file"):
        assert command("pack", package, target).code == 1
    assert command("pack", package, tmp_path / "a.gpack").code == 0
    for target in (tmp_path / "file" / "out", tmp_path / "file", tmp_path / "sound"):
        assert command("unpack", tmp_path / "a.gpack", target).code == 1
    assert command("unpack", tmp_path, tmp_path / "out").code == 1


def test_a_package_that_validate_refuses_is_not_packed(command: Command, tmp_path: Path) -> None:
    folder = write_package(tmp_path / "sound", "script").path
    graph = folder / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:1000])
    code = command("validate", folder).code
    ran = command("pack", folder, tmp_path / "a.gpack")
    assert (ran.code, code) == (3, 3)
    assert "model.onnx" in ran.err
    assert "so it is not packed" in ran.err
    assert f"genai-pipeline validate {folder}" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["sound"]


@pytest.mark.parametrize("large", [0, 2 << 20])
def test_an_archive_in_the_place_of_a_package_says_what_to_do(
    command: Command, tiny: TinyPackage, tmp_path: Path, large: int
) -> None:
    (tiny.path / "more.bin").write_bytes(bytes(large))
    archive = tmp_path / "a.gpack"
    assert command("pack", tiny.path, archive).code == 0
    for ran in (command("run", archive, "x"), command("validate", archive)):
        assert ran.code == 3
        assert "is an archive, not a metadata file" in ran.err + ran.out
        assert f"genai-pipeline unpack {archive} first" in ran.err + ran.out
        assert "UTF-8" not in ran.err + ran.out

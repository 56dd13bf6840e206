"""The package cache: where it is, whole or nothing, one maker at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from genai_pipeline.errors import PullError
from genai_pipeline.importers import cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "cache"))
    return cache.package_folder("thing", "fast")


def make(target: Path) -> None:
    target.mkdir()
    (target / "model.onnx").write_bytes(b"graph")


def test_home_is_the_variable_else_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path))
    assert cache.cache_home() == tmp_path
    monkeypatch.setenv("GENAI_PIPELINE_HOME", "~/models")
    assert cache.cache_home() == Path.home() / "models"
    monkeypatch.setenv("GENAI_PIPELINE_HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "genai-pipeline" in cache.cache_home().parts


def test_a_package_is_made_once_per_fingerprint(folder: Path) -> None:
    calls = []

    def build(target: Path) -> None:
        calls.append(target)
        make(target)

    for fingerprint in ("a", "a", "b", "b"):
        assert cache.materialise(folder, fingerprint, build) == folder
        assert cache.is_whole(folder, fingerprint)
    assert len(calls) == 2
    cache.materialise(folder, "b", build, renew=True)
    assert len(calls) == 3
    assert not cache.is_whole(folder, "a")
    assert [path.name for path in folder.parent.iterdir()] == ["fast"]


def test_a_failed_build_leaves_the_old_package_and_nothing_else(folder: Path) -> None:
    cache.materialise(folder, "a", make)

    def fail(target: Path) -> None:
        make(target)
        raise PullError("stopped half way")

    with pytest.raises(PullError, match="half way"):
        cache.materialise(folder, "b", fail)
    assert cache.is_whole(folder, "a")
    assert [path.name for path in folder.parent.iterdir()] == ["fast"]


def test_a_folder_that_nobody_finished_is_not_whole(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"half")
    assert not cache.is_whole(folder, "a")
    (folder / ".made.json").write_text('{"fingerprint": "a')
    assert not cache.is_whole(folder, "a")
    cache.materialise(folder, "a", make)
    assert (folder / "model.onnx").read_bytes() == b"graph"


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("no folder")
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(occupied))
    with pytest.raises(PullError, match="cannot write the package cache") as caught:
        cache.materialise(cache.package_folder("thing", "fast"), "a", make)
    assert "GENAI_PIPELINE_HOME" in caught.value.hint


def test_the_second_maker_is_told_that_it_waits_and_finds_the_package_made(folder: Path) -> None:
    begun, waiting, builds = threading.Event(), threading.Event(), []

    def slow(target: Path) -> None:
        builds.append(target)
        begun.set()
        assert waiting.wait(60)
        make(target)

    first = threading.Thread(target=cache.materialise, args=(folder, "a", slow))
    first.start()
    assert begun.wait(60)
    cache.materialise(folder, "a", slow, waiting=waiting.set)
    first.join(60)
    assert len(builds) == 1
    assert cache.is_whole(folder, "a")


def test_different_variants_do_not_wait_for_each_other(folder: Path) -> None:
    def build(target: Path) -> None:
        make(target)
        cache.materialise(folder.parent / "exact", "a", make, waiting=lambda: pytest.fail("waited"))

    cache.materialise(folder, "a", build)
    assert cache.is_whole(folder.parent / "exact", "a")

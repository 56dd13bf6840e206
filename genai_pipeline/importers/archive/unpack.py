"""Unpacking: an archive from anywhere becomes a package folder, whole and as its manifest says, or nothing at all.

Entries are uncompressed, so what comes out is no more than what came in; names are checked by the rule for every file
of a package before anything is written; links are never made from what an archive says, only between files of equal
content that this program has just written.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from genai_pipeline.errors import ArchiveFileError, PackageNotFoundError
from genai_pipeline.importers.archive.manifest import (
    MANIFEST_FILE,
    MOST_BYTES,
    MOST_FILES,
    Manifest,
    PackedFile,
    damaged,
    read_manifest,
)
from genai_pipeline.importers.archive.pack import hash_file
from genai_pipeline.importers.package_writer import new_package, package_name
from genai_pipeline.importers.progress import Progress, silent

_END: Final = struct.Struct("<4s4H2IH")  # the last record of a zip
_END64_PLACE: Final = struct.Struct("<4sIQI")
_END64: Final = struct.Struct("<4sQ2H2I4Q")
_ENCRYPTED: Final = 0x1


def unpack(archive: Path, target: Path | None = None, *, progress: Progress = silent) -> tuple[Path, Manifest]:
    """Unpack into the new folder ``target`` (None: the package's name, in the current folder).

    Returns the folder and the manifest. Raises ArchiveError, PackageNotFoundError where there is no such file,
    ArchiveFileError where it cannot be read, ImportModelError where the folder cannot be written.
    """
    try:
        with archive.open("rb") as file, _opened(file) as entries:
            stored = _entries(entries)
            manifest = _manifest(entries, stored)
            folder = Path(package_name(manifest.package, Path())) if target is None else target
            with new_package(folder) as scratch:
                _Unpacking(entries, stored, scratch, manifest, progress).run()
            return folder, manifest
    except (zipfile.BadZipFile, EOFError, struct.error, NotImplementedError, UnicodeDecodeError) as error:
        raise damaged(str(error) or "it is cut off") from error
    except FileNotFoundError as error:
        raise PackageNotFoundError(f"there is no archive {archive}", hint="genai-pipeline pack makes one") from error
    except OSError as error:
        what = f"{archive} cannot be read: {error.strerror or error}"
        raise ArchiveFileError(what, hint="name an archive that you may read") from error


def _opened(file: IO[bytes]) -> zipfile.ZipFile:
    """The zip, once its directory is known to be of a size that may be read into memory."""
    size = file.seek(0, os.SEEK_END)
    if size < _END.size:
        raise damaged("it is too short")
    file.seek(size - _END.size)
    mark, _, _, _, _, length, _, comment = _END.unpack(file.read(_END.size))
    if mark != b"PK\x05\x06" or comment:
        raise damaged("it does not end like an archive that was packed here")
    if length == 0xFFFFFFFF:
        file.seek(max(0, size - _END.size - _END64_PLACE.size))
        _, _, place, _ = _END64_PLACE.unpack(file.read(_END64_PLACE.size))
        file.seek(min(place, size))
        length = _END64.unpack(file.read(_END64.size))[8]
    if length > MOST_BYTES:
        raise damaged(f"its directory has {length} bytes, more than {MOST_BYTES}")
    return zipfile.ZipFile(file)


def _entries(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The entries by name: plain files, uncompressed, each once, together no larger than the archive."""
    found: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    if len(infos) > MOST_FILES + 1:
        raise damaged(f"it has {len(infos)} entries")
    for info in infos:
        kind = stat.S_IFMT(info.external_attr >> 16)
        if info.filename in found:
            raise damaged(f"it has the entry {info.filename!r} twice")
        if not info.filename or info.is_dir() or kind not in (0, stat.S_IFREG):
            raise damaged(f"the entry {info.filename!r} is no plain file")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise damaged(f"the entry {info.filename!r} is compressed")
        if info.flag_bits & _ENCRYPTED:
            raise damaged(f"the entry {info.filename!r} is encrypted")
        found[info.filename] = info
    _check_apart(infos, archive.start_dir)
    return found


def _check_apart(infos: list[zipfile.ZipInfo], end: int) -> None:
    """No two entries share bytes of the archive, so that all of them are no more than it."""
    places = sorted((info.header_offset, info.file_size, info.filename) for info in infos)
    after = [offset for offset, _, _ in places[1:]] + [end]
    for (offset, size, name), following in zip(places, after, strict=False):
        if offset + size > following:
            raise damaged(f"the entry {name!r} overlaps what follows it")


def _manifest(archive: zipfile.ZipFile, stored: Mapping[str, zipfile.ZipInfo]) -> Manifest:
    """The manifest, which must tell of exactly the entries that are there."""
    info = stored.get(MANIFEST_FILE)
    if info is None:
        raise damaged(f"it has no {MANIFEST_FILE}")
    if info.file_size > MOST_BYTES:
        raise damaged(f"its manifest has {info.file_size} bytes, more than {MOST_BYTES}")
    manifest = read_manifest(archive.read(info))
    named = {file.stored for file in manifest.files}
    for name in sorted(named ^ (stored.keys() - {MANIFEST_FILE})):
        raise damaged(f"{name!r} is an entry that only the {'manifest names' if name in named else 'archive has'}")
    for file in manifest.files:
        if file.size != stored[file.stored].file_size:
            raise damaged(f"{file.path} has {stored[file.stored].file_size} bytes, its manifest says {file.size}")
    return manifest


class _Unpacking:
    """One run over the files of a manifest."""

    def __init__(
        self,
        archive: zipfile.ZipFile,
        stored: Mapping[str, zipfile.ZipInfo],
        folder: Path,
        manifest: Manifest,
        progress: Progress,
    ) -> None:
        self._archive = archive
        self._stored = stored
        self._folder = folder
        self._files = manifest.files
        self._progress = progress
        self._total, self._done = sum(file.size for file in manifest.files), 0
        self._spare = sum(info.file_size for info in stored.values())  # bytes that may be copied besides
        self._written: dict[str, tuple[Path, str]] = {}  # entry -> where its bytes are, and their hash

    def run(self) -> None:
        """Write every file and check its hash."""
        for file in self._files:
            path = self._folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            known = self._written.get(file.stored)
            digest = self._copy(file, path) if known is None else self._share(file, known[0], known[1], path)
            if digest != file.sha256:
                raise damaged(f"{file.path} has the SHA-256 {digest}, its manifest says {file.sha256}")

    def _copy(self, file: PackedFile, path: Path) -> str:
        with path.open("xb") as into:
            source = self._archive.open(self._stored[file.stored])
            digest = hash_file(source, lambda count: self._moved(file, count), into)
        self._written[file.stored] = (path, digest)
        return digest

    def _share(self, file: PackedFile, source: Path, digest: str, path: Path) -> str:
        """The same bytes under another name: a hard link, a copy where the file system has none.

        Copies together are no more than the archive: otherwise a small one could fill a disk.
        """
        self._moved(file, file.size)
        try:
            os.link(source, path)
        except OSError:
            self._spare -= file.size
            if self._spare < 0:
                raise damaged(f"{file.path} and others have the bytes of {file.stored}: too many copies") from None
            shutil.copyfile(source, path)
        return digest

    def _moved(self, file: PackedFile, count: int) -> None:
        self._done += count
        self._progress(f"unpacking {file.path}", self._done, self._total)

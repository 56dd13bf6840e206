"""Packing: files go into the archive as they are read, a piece at a time, and are hashed on the way."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from genai_pipeline.errors import ArchiveError, ArchiveFileError
from genai_pipeline.importers.archive.contents import Check, Content, Lend, contents, lenders_of, read_spec, unchecked
from genai_pipeline.importers.archive.manifest import MANIFEST_FILE, MOST_FILES, Lender, Manifest, PackedFile
from genai_pipeline.importers.progress import Progress, silent

ENDING: Final = ".gpack"
PIECE: Final = 1 << 20  # bytes in memory at a time
_DAY: Final = (1980, 1, 1, 0, 0, 0)  # of every entry: the same package gives the same archive
_MODE: Final = 0o100644 << 16  # a regular file that everybody may read


def pack(
    package: Path,
    target: Path | None = None,
    *,
    lend: Lend | None = None,
    progress: Progress = silent,
    check: Check = unchecked,
) -> Path:
    """Write the package into one archive and return its path; ``target`` None: NAME.gpack in the current folder.

    ``lend`` gives the folders of packages that components are borrowed from, which then go into the archive too (None:
    the manifest names them). ``check`` finds problems beyond the metadata, whose errors refuse the package. The archive
    appears whole or not at all. Raises PackageInvalidError, PackagePathError,
    ArchiveError, and of it ArchiveFileError where ``target`` is taken or cannot be written.
    """
    spec = read_spec(package, check)
    target = Path(f"{spec.name}{ENDING}") if target is None else target
    if os.path.lexists(target):
        raise ArchiveFileError(f"{target} exists", hint="name another file, or remove this one first")
    files = list(contents(spec, lend, check))
    if len(files) > MOST_FILES:
        raise ArchiveError(f"{package} has {len(files)} files; an archive holds {MOST_FILES}")
    with _whole_or_not(target) as file:
        _Packing(files, progress).write(file, spec.name, lenders_of(spec, included=lend is not None))
    return target


@contextmanager
def _whole_or_not(target: Path) -> Iterator[IO[bytes]]:
    """A file beside ``target`` that takes its name when the block ends well, and vanishes otherwise."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.chmod(0o644)  # mkstemp makes files private
            part.rename(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ArchiveFileError(
            f"{target} cannot be written: {error.strerror or error}", hint="see to free space and access rights"
        ) from error


class _Packing:
    """One run over the files of a package."""

    def __init__(self, files: Sequence[Content], progress: Progress) -> None:
        self._files = files
        self._progress = progress
        sizes = [content.source.stat().st_size for content in files]
        self._alike = Counter(sizes)  # files of one size may be the same
        self._total, self._done = sum(sizes), 0
        self._stored: dict[tuple[int, int] | tuple[int, str], PackedFile] = {}  # by inode, and by size and hash

    def write(self, file: IO[bytes], name: str, lenders: Sequence[Lender]) -> None:
        """Every entry, then the manifest."""
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            packed = tuple(self._one(archive, content) for content in self._files)
            text = json.dumps(Manifest(name, packed, tuple(lenders)).to_dict(), ensure_ascii=False, indent=1)
            archive.writestr(_entry(MANIFEST_FILE), text.encode())

    def _one(self, archive: zipfile.ZipFile, content: Content) -> PackedFile:
        """Store a file unless its bytes are there already."""
        place = content.source.stat()
        inode = (place.st_dev, place.st_ino)
        known = self._stored.get(inode)
        if known is None and self._alike[place.st_size] > 1:
            known = self._stored.get((place.st_size, hash_file(content.source.open("rb"), lambda count: None)))
        if known is not None:
            self._moved(content.path, place.st_size)
            return PackedFile(content.path, known.size, known.sha256, known.stored)
        with archive.open(_entry(content.path), "w", force_zip64=True) as entry:
            digest = hash_file(content.source.open("rb"), lambda count: self._moved(content.path, count), entry)
        packed = PackedFile(content.path, place.st_size, digest, content.path)
        self._stored[inode] = self._stored[packed.size, digest] = packed
        return packed

    def _moved(self, path: str, count: int) -> None:
        self._done += count
        self._progress(f"packing {path}", self._done, self._total)


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DAY)
    info.external_attr = _MODE
    info.create_system = 3  # access rights as on Unix
    return info


def hash_file(file: IO[bytes], moved: Callable[[int], None], into: IO[bytes] | None = None) -> str:
    """SHA-256 of what is left in ``file``, which is closed; it is copied ``into`` another on the way."""
    digest = hashlib.sha256()
    with file:
        while piece := file.read(PIECE):
            digest.update(piece)
            if into is not None:
                into.write(piece)
            moved(len(piece))
    return digest.hexdigest()

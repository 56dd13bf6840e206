"""The tier below host memory: pages in files, within a bound of bytes.

It is a cache, not a store: the files have no name, so the system removes them when they are closed, also when the
process is killed. Each record has a checksum that is over its place too. What cannot be written or read is counted
and is then simply not there; a wrong byte never comes back.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import OptionError


@dataclass(frozen=True, slots=True)
class _Record:
    size: int
    slot: int
    checksum: int


class DiskTier:
    """Records of bytes by handle, in unnamed files in ``folder``, at most ``bound_bytes`` in all.

    Raises OptionError when no file can be made there.
    """

    def __init__(self, folder: Path, bound_bytes: int) -> None:
        self._folder = folder
        self._bound_bytes = bound_bytes
        self._files: dict[int, _SlotFile] = {}  # by size of record: pages come in few sizes
        self._records: dict[int, _Record] = {}
        self._next = 0
        self.nbytes = 0
        self.write_errors = 0
        self.read_errors = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise OptionError(
                f"the cache cannot keep files in {folder}: {error.strerror}",
                param="cache_folder",
                hint="name a folder on a local disk that this process may write to",
            ) from error

    @property
    def bound_bytes(self) -> int:
        """Bytes that all records together may take."""
        return self._bound_bytes

    @property
    def records(self) -> int:
        """Records that are there."""
        return len(self._records)

    def fits(self, nbytes: int) -> bool:
        """Whether a record of this size is within the bound."""
        return self.nbytes + nbytes <= self._bound_bytes

    def write(self, parts: Sequence[NDArray[Any]]) -> int | None:
        """Keep the bytes of some arrays; returns their handle, or None when there is no room or writing failed."""
        data = b"".join(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data for part in parts)
        if not self.fits(len(data)):
            return None
        handle = self._next
        try:
            slot = self._file(len(data)).write(data)
        except OSError:
            self.write_errors += 1
            return None
        self._next += 1
        self._records[handle] = _Record(len(data), slot, zlib.crc32(data, handle))
        self.nbytes += len(data)
        return handle

    def read(self, handle: int) -> bytes | None:
        """The bytes of a record, which stays; None when they cannot be read or are not what was written."""
        record = self._records[handle]
        try:
            data = self._files[record.size].read(record.slot)
        except OSError:
            data = b""
        if len(data) != record.size or zlib.crc32(data, handle) != record.checksum:
            self.read_errors += 1
            return None
        return data

    def free(self, handle: int) -> None:
        """Forget a record."""
        record = self._records.pop(handle)
        self._files[record.size].free(record.slot)
        self.nbytes -= record.size

    def close(self) -> None:
        """Remove the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._records.clear()
        self.nbytes = 0

    def _file(self, size: int) -> _SlotFile:
        if size not in self._files:
            self._files[size] = _SlotFile(self._folder, size)
        return self._files[size]


class _SlotFile:
    """Records of one size in an unnamed file."""

    def __init__(self, folder: Path, size: int) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (lives with the tier)
        self._size = size
        self._taken: set[int] = set()
        self._free: list[int] = []
        self._end = 0

    def write(self, data: bytes) -> int:
        """Write a record into a free slot; the slot stays free when that fails."""
        slot = self._free[-1] if self._free else self._end
        self._file.seek(slot * self._size)
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        if self._free:
            self._free.pop()
        else:
            self._end += 1
        self._taken.add(slot)
        return slot

    def read(self, slot: int) -> bytes:
        """The bytes of a record; fewer where the file ends early."""
        self._file.seek(slot * self._size)
        data = bytearray()
        while len(data) < self._size and (part := self._file.read(self._size - len(data))):
            data += part
        return bytes(data)

    def free(self, slot: int) -> None:
        """Free a slot, and give the space of trailing free slots back."""
        self._taken.remove(slot)
        self._free.append(slot)
        if not self._taken:
            self._free.clear()
            self._end = 0
            self._file.truncate(0)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

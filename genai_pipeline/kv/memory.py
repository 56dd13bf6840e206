"""Anonymous memory that costs nothing until it is touched: reserved, moved and given back page by page.

On Linux a region is one private mapping without swap reservation and without huge pages: with them, the first token
of a row would cost two megabytes per stripe. Elsewhere, and where the system refuses to promise more memory than it
has (``vm.overcommit_memory`` = 2), a region is ordinary memory, and the caller keeps it small.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import CapacityError

_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # in Python's module since 3.13
_MADV_NOHUGEPAGE = getattr(mmap, "MADV_NOHUGEPAGE", 15)
_MREMAP_MAYMOVE, _MREMAP_FIXED, _MREMAP_DONTUNMAP = 1, 2, 4  # the last since Linux 5.7


@cache
def overcommits() -> bool:
    """Whether reserving more memory than there is costs nothing until it is touched."""
    if sys.platform != "linux":
        return False
    try:
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "2"
    except OSError:
        return True


class Region:
    """``nbytes`` of zeroed memory at a fixed address; all ranges are byte offsets and multiples of the page size."""

    page_bytes = mmap.PAGESIZE

    def __init__(self, nbytes: int) -> None:
        assert nbytes > 0
        self.nbytes = nbytes
        self._sparse = overcommits()
        try:
            self._memory: Any = _map(nbytes) if self._sparse else np.zeros(nbytes, np.uint8)
        except (OSError, MemoryError) as error:
            raise CapacityError(
                f"the system refuses {nbytes / 2**20:.0f} MiB of address space for the cache",
                hint="lower max_batch or the context length, or raise the address space limit (ulimit -v)",
            ) from error
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8)
        self.address: int = self.bytes.__array_interface__["data"][0]

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A view of the memory at ``offset``."""
        return np.ndarray(shape, dtype, self.bytes, offset)

    def discard(self, offset: int, nbytes: int) -> None:
        """Give a range back to the system; it reads as zeros afterwards."""
        if self._sparse:
            self._memory.madvise(mmap.MADV_DONTNEED, offset, nbytes)
        else:
            self.bytes[offset : offset + nbytes] = 0

    def remap(self, source: int, target: int, nbytes: int) -> bool:
        """Move the pages of one range under another, leaving zeros; False when this system cannot.

        The source stays mapped throughout (MREMAP_DONTUNMAP), so no other thread's mapping can land in the hole.
        """
        if not self._sparse or _libc is None:
            return False
        flags = _MREMAP_MAYMOVE | _MREMAP_FIXED | _MREMAP_DONTUNMAP
        moved = _libc.mremap(self.address + source, nbytes, nbytes, flags, self.address + target)
        if moved == self.address + target:
            return True
        code = ctypes.get_errno()
        # EINVAL: an older kernel; ENOMEM: too many mappings; ENOSYS: a sandbox. Nothing was changed.
        assert code in (errno.EINVAL, errno.ENOMEM, errno.ENOSYS), code
        return False

    def close(self) -> None:
        """Give all pages back; the address range goes when the last view does."""
        if self._sparse:
            self._memory.madvise(mmap.MADV_DONTNEED)
        self.bytes = self._memory = np.empty(0, np.uint8)


def resident_bytes(regions: Iterable[Region]) -> int | None:
    """Bytes of the regions that are in memory, from the kernel's own count; None where it keeps none."""
    spans = _joined(sorted((region.address, region.address + region.nbytes) for region in regions))
    try:
        lines = Path("/proc/self/smaps").read_text().splitlines()
    except OSError:
        return None
    total, inside = 0, False
    for line in lines:
        word = line.split(maxsplit=1)[0]
        if not word.endswith(":"):  # the head of a mapping: "7f00-7f08 rw-p ..."
            start, stop = (int(part, 16) for part in word.split("-"))
            inside = any(low <= start and stop <= high for low, high in spans)
        elif inside and word == "Rss:":
            total += int(line.split()[1]) * 1024
    return total


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted spans with those that touch made one, as the kernel shows neighbouring mappings as one."""
    joined: list[tuple[int, int]] = []
    for start, stop in spans:
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, stop))
    return joined


def _map(nbytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    try:
        memory.madvise(_MADV_NOHUGEPAGE)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel built without huge pages does not know the advice
            raise
    return memory


def _load_libc() -> Any:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mremap.restype = ctypes.c_void_p
    libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    return libc


_libc = _load_libc()

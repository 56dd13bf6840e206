"""The disk tier keeps within its bound, gives back what was written or nothing, and leaves no files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.kv.tiers import DiskTier


@contextmanager
def largest_file(nbytes: int) -> Iterator[None]:
    """Lets the system refuse files beyond a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def record(value: int, size: int = 1000) -> list[np.ndarray]:
    return [np.full(size // 2, value, np.uint8), np.full((2, size // 4), value + 1, np.int8)]


def test_records_of_several_sizes_come_back(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "new" / "folder", 10_000)
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3).T, np.ones((), ml_dtypes.bfloat16), np.empty(0)]
    handles = [tier.write(record(1)), tier.write(arrays), tier.write(record(3)), tier.write([])]
    assert None not in handles
    expected = [b"".join(part.tobytes() for part in parts) for parts in (record(1), arrays, record(3), [])]
    assert [tier.read(handle) for handle in handles if handle is not None] == expected
    assert (tier.records, tier.nbytes) == (4, sum(map(len, expected)))
    assert not list((tmp_path / "new" / "folder").iterdir())
    tier.close()
    assert (tier.records, tier.nbytes) == (0, 0)


def test_the_bound_holds_and_freed_places_are_used_again(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 2500)
    first, second = tier.write(record(1)), tier.write(record(2))
    assert first is not None
    assert second is not None
    assert tier.write(record(3)) is None
    assert not tier.fits(1000)
    tier.free(first)
    third = tier.write(record(3))
    assert third is not None
    assert tier.read(third) == b"\x03" * 500 + b"\x04" * 500
    assert tier._files[1000]._end == 2
    tier.free(second)
    tier.free(third)
    assert tier._files[1000]._file.seek(0, 2) == 0
    assert (tier.write_errors, tier.read_errors, tier.nbytes) == (0, 0, 0)
    tier.close()


def test_a_disk_that_takes_no_more_is_counted(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 10**6)
    first = tier.write(record(1))
    assert first is not None
    with largest_file(1500):
        assert tier.write(record(2)) is None
        assert tier.write(record(2)) is None
    assert (tier.write_errors, tier.records, tier.nbytes) == (2, 1, 1000)
    second = tier.write(record(2))
    assert second is not None
    assert tier.read(first) == b"\x01" * 500 + b"\x02" * 500
    assert tier.read(second) == b"\x02" * 500 + b"\x03" * 500
    tier.close()


@pytest.mark.parametrize("damage", ["flip", "swap", "cut", "closed"])
def test_what_is_not_as_written_is_not_given(tmp_path: Path, damage: str) -> None:
    tier = DiskTier(tmp_path, 10**6)
    first, second = tier.write(record(1)), tier.write(record(1))
    assert first is not None
    assert second is not None
    file = tier._files[1000]._file
    if damage == "flip":
        file.seek(1999)
        file.write(b"\x00")
    elif damage == "swap":  # the bytes of another record, even equal ones, are not those of this handle
        tier._records[second] = tier._records[first]
    elif damage == "cut":
        file.truncate(1990)
    else:
        reader = (tmp_path / "write_only").open("wb", buffering=0)
        tier._files[1000]._file = reader
        file.close()
    assert tier.read(second) is None
    assert tier.read_errors == 1
    tier.close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match=r"cannot keep files in .*below: ") as caught:
        DiskTier(tmp_path / "file" / "below", 100)
    assert caught.value.hint

"""What was downloaded, kept in the user's cache by its hash: a package that is made anew needs no network.

Packages are made anew when the code of their import changes, and two versions of the program that share a cache take
turns with that; what they are made of stays the same. Layout below the cache folder: ``downloads/SHA256/FILE``. Any of
it may be deleted at any time: it is downloaded again when it is needed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from genai_pipeline.importers.cache import cache_home
from genai_pipeline.importers.recipes import Pinned

_FOLDER: Final = "downloads"


def kept(expected: Pinned) -> Path | None:
    """The kept file of that size and hash; None when there is none, or a damaged one, which ``keep`` replaces."""
    file = _place(expected)
    try:
        with file.open("rb") as stream:
            whole = os.fstat(stream.fileno()).st_size == expected.size
            whole = whole and hashlib.file_digest(stream, "sha256").hexdigest() == expected.sha256
    except OSError:  # absent, or out of reach
        return None
    return file if whole else None


def keep(file: Path, expected: Pinned) -> Path:
    """Move a file that was checked to where it is kept, in one step; it has the new path then. Raises OSError."""
    place = _place(expected)
    place.parent.mkdir(parents=True, exist_ok=True)
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
    return file.replace(place)


def _place(expected: Pinned) -> Path:
    return cache_home() / _FOLDER / expected.sha256 / expected.name

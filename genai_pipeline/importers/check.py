"""What callers may do with a package that a pull made, before it gets into the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

# Called with the package's folder and what it was made of; what it raises keeps the package out of the cache.
Check = Callable[[Path, str], None]


def unchecked(_folder: Path, _what: str) -> None:
    """For callers that look at packages themselves, or list their errors."""

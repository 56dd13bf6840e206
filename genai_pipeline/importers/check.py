"""What callers may do with a package that was just made, before it gets its name or into the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genai_pipeline.importers.report import ReportRow

# Called with the package's folder, what it was made of, and the rows about that; what it raises stops the import.
Check = Callable[[Path, str, "Sequence[ReportRow]"], None]


def unchecked(_folder: Path, _what: str, _rows: Sequence[ReportRow]) -> None:
    """For callers that look at packages themselves, or list their errors."""

"""``genai-pipeline list``: the known packages, and what of them is in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from genai_pipeline.cli.output import write, write_json

if TYPE_CHECKING:
    from genai_pipeline.importers.pull import PackageEntry


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list")(list_known)


def list_known(as_json: Annotated[bool, typer.Option("--json", help="One JSON list.")] = False) -> None:
    """List the packages that can be used by name."""
    from genai_pipeline.importers.pull import list_packages

    entries = list_packages()
    if as_json:
        write_json([entry.to_dict() for entry in entries])
        return
    rows = [("NAME", "LICENCE", "DOWNLOAD", "PRECISIONS (* in the cache)"), *map(_row, entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        write("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) + "\n")


def _row(entry: PackageEntry) -> tuple[str, str, str, str]:
    precisions = (precision + ("*" if precision in entry.cached else "") for precision in entry.precisions)
    return (entry.name, entry.license, f"{entry.download_bytes / 1e6:.0f} MB", " ".join(precisions))

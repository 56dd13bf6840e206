"""``genai-pipeline pack`` and ``unpack``: a package as one file with hashes, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from genai_pipeline.cli.output import Output, write

if TYPE_CHECKING:
    from genai_pipeline.importers.archive.manifest import Lender


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command("pack")(pack)
    app.command("unpack")(unpack)


def pack(
    ctx: typer.Context,
    package: Annotated[str, typer.Argument(help="A folder, or a name from 'list'.")],
    out: Annotated[Path | None, typer.Argument(help="The archive to write (default: NAME.gpack here).")] = None,
    lenders: Annotated[
        bool, typer.Option("--lenders", help="Take in the packages that components are borrowed from, too.")
    ] = False,
    precision: Annotated[str | None, typer.Option(help="Of a known package: the variant to pack.")] = None,
) -> None:
    """Write a package into one archive, every file with its SHA-256; what is there twice is stored once.

    The archive is an uncompressed zip. Components of other packages are named in it, or taken in with --lenders.
    """
    from genai_pipeline.checking import check_package
    from genai_pipeline.importers import archive
    from genai_pipeline.importers.pull import lending, resolve

    output: Output = ctx.obj
    with output.progress() as progress:
        folder = resolve(package, precision=precision, progress=progress)
        lend = lending(progress) if lenders else None
        written = archive.pack(
            folder, out, lend=lend, progress=progress, check=lambda path: check_package(path, lend).problems
        )
    output.note(f"packed {folder}: {written.stat().st_size:,} bytes")
    write(f"{written}\n")


def unpack(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="The archive.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The folder to make (default: the package's name, here).")
    ] = None,
) -> None:
    """Make a package folder of an archive; nothing is left of one that is damaged."""
    from genai_pipeline.importers import archive

    output: Output = ctx.obj
    with output.progress() as progress:
        made, manifest = archive.unpack(file, folder, progress=progress)
    output.note(f"unpacked {manifest.package}: {len(manifest.files)} files, all as their hashes say")
    for lender in manifest.lenders:
        if not lender.included:
            output.note(_missing(lender))
    write(f"{made}\n")


def _missing(lender: Lender) -> str:
    return f"it borrows {', '.join(lender.components)} of {lender.package}: genai-pipeline pull {lender.package}"

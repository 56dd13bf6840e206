"""``genai-pipeline init DIR``: a draft of the metadata for ONNX files of unknown origin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from genai_pipeline.cli.output import Output, write


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def init(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder with the ONNX files.")],
    name: Annotated[str | None, typer.Option(help="The package's name (default: the name of the folder).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write in place of a metadata file that is there.")] = False,
) -> None:
    """Read the ONNX files in DIR and write a draft metadata file with every open question marked."""
    from genai_pipeline.importers.drafting import write_draft

    draft = write_draft(folder, name=name, force=force)
    output: Output = ctx.obj
    for question in draft.questions:
        output.note(f"{question.at.path}: {question.message}")
    count = len(draft.questions)
    said = f"{count} question{'s' if count > 1 else ''} open" if count else "nothing left open"
    output.note(f"wrote {draft.file}: {said}; next: genai-pipeline validate {folder}")
    write(f"{draft.file}\n")

"""``genai-pipeline inspect``: the compiled plan of a package, for people, programs and diagram tools."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from genai_pipeline.cli.output import write, write_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inspect")(inspect)


def inspect(
    ctx: typer.Context,
    package: Annotated[str, typer.Argument(help="A folder, a metadata file, or a name from 'list'.")],
    form: Annotated[
        Literal["text", "json", "mermaid", "dot"], typer.Option("--format", help="How to show it.")
    ] = "text",
    precision: Annotated[str | None, typer.Option(help="Of a known package: the variant to show.")] = None,
) -> None:
    """Show stages, ports, values, KV bytes per token and the execution order of a package."""
    from genai_pipeline.cli.packages import compiled
    from genai_pipeline.graph import render

    plan = compiled(ctx.obj, package, precision)
    if form == "json":
        write_json(render.to_json(plan))
    else:
        write({"text": render.to_text, "mermaid": render.to_mermaid, "dot": render.to_dot}[form](plan))

"""``genai-pipeline inspect``: the compiled plan of a package, for people, programs and diagram tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.output import Output, write, write_json
from genai_pipeline.errors import OptionError

if TYPE_CHECKING:
    from genai_pipeline.backends.placement import GraphPlacement
    from genai_pipeline.graph.plan import ExecutionPlan

_DIAGRAMS: Final = ("mermaid", "dot")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inspect")(inspect)


@takes(groups.SELECTION)
def inspect(
    ctx: typer.Context,
    package: groups.Package,
    form: Annotated[
        Literal["text", "json", "mermaid", "dot"], typer.Option("--format", help="How to show it.")
    ] = "text",
    precision: Annotated[str | None, typer.Option(help="Of a known package: the variant to show.")] = None,
    **options: Any,
) -> None:
    """Show stages, ports, values, KV bytes per token and the execution order of a package.

    With --backend or --provider its graphs are loaded, and shown with what really runs them.
    """
    from genai_pipeline.cli.packages import compiled

    selection = groups.SELECTION.given(options)
    if not selection:
        _show(form, compiled(ctx.obj, package, precision), None)
        return
    if form in _DIAGRAMS:
        hint = "use --format text or json, or leave --backend and --provider out"
        raise OptionError(f"a {form} diagram does not show what runs the graphs", param="format", hint=hint)
    _show(form, *_loaded(ctx.obj, package, {**selection, **({} if precision is None else {"precision": precision})}))


def _loaded(output: Output, package: str, loading: dict[str, Any]) -> tuple[ExecutionPlan, tuple[GraphPlacement, ...]]:
    """The plan of a package that is loaded for it, and what runs its graphs. Raises what ``gp.load`` does."""
    from genai_pipeline.cli.packages import loaded

    with loaded(output, package, loading) as pipe:
        return pipe.plan, pipe.placement


def _show(form: str, plan: ExecutionPlan, placement: tuple[GraphPlacement, ...] | None) -> None:
    from genai_pipeline.graph import render

    if form == "json":
        placed = {} if placement is None else {"placement": [graph.to_dict() for graph in placement]}
        write_json({**render.to_json(plan), **placed})
        return
    write({"text": render.to_text, "mermaid": render.to_mermaid, "dot": render.to_dot}[form](plan))
    if placement is not None:
        write("".join(["graphs\n", *(f"  {graph}\n" for graph in placement)]))

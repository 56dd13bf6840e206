"""``genai-pipeline validate`` (and ``validate-package``): every problem of every package below the given paths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from genai_pipeline.cli.output import Output
from genai_pipeline.cli.reports import REPORTS

if TYPE_CHECKING:
    from genai_pipeline.problems import Problem

INVALID = 3
_METADATA_FILE = "inference_metadata.yaml"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("validate")(validate)


def validate(
    ctx: typer.Context,
    paths: Annotated[list[Path], typer.Argument(help="Package folders, metadata files, or folders of packages.")],
    form: Annotated[Literal["text", "json", "github"], typer.Option("--format", help="How to report.")] = "text",
) -> None:
    """Check packages: syntax, schema, references, data flow, graphs, tokenizer, capabilities."""
    import genai_pipeline as gp

    packages = [package for path in paths for package in packages_below(path)]
    found: list[Problem] = []
    for package in packages:
        found += gp.validate(package)[1]
    failed = any(problem.severity == "error" for problem in found)
    REPORTS[form](found, failed)
    output: Output = ctx.obj
    output.note(_count(len(packages), found))
    if failed:
        raise typer.Exit(INVALID)


def packages_below(path: Path) -> Sequence[Path]:
    """The package at ``path``, or all packages in the folders below it; ``path`` itself when there is none."""
    if not path.is_dir() or (path / _METADATA_FILE).exists():
        return [path]
    return sorted(file.parent for file in path.rglob(_METADATA_FILE)) or [path]


def _count(packages: int, problems: Sequence[Problem]) -> str:
    errors = sum(problem.severity == "error" for problem in problems)
    checked = f"{packages} package{'s' if packages != 1 else ''} checked"
    if not problems:
        return f"{checked}, no problems"
    return f"{checked}, {errors} error{'s' if errors != 1 else ''}, {len(problems) - errors} other findings"

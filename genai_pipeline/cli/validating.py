"""``genai-pipeline validate`` (and ``validate-package``): every problem of every package below the given paths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.output import Output
from genai_pipeline.cli.reports import REPORTS
from genai_pipeline.errors import PackageNotFoundError

if TYPE_CHECKING:
    from genai_pipeline.problems import Problem

INVALID = 3
_METADATA_FILE = "inference_metadata.yaml"
_NOT_SEARCHED = frozenset({"node_modules", "site-packages", "__pycache__"})  # and hidden folders


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("validate")(validate)


@takes(groups.SELECTION)
def validate(
    ctx: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(help="Package folders, metadata files, folders of packages, or names that were pulled."),
    ],
    form: Annotated[Literal["text", "json", "github"], typer.Option("--format", help="How to report.")] = "text",
    run: Annotated[bool, typer.Option("--run", help="Also load each and run one short made-up request.")] = False,
    **options: Any,
) -> None:
    """Check packages: syntax, schema, references, data flow, graphs, tokenizer, capabilities.

    --backend and --provider choose among variants of components, and are what --run runs on.
    """
    from genai_pipeline.loading import load_options, require_runtime

    selection = groups.SELECTION.given(options)
    if selection:
        require_runtime(load_options(selection))
    packages = [package for path in paths for package in packages_of(path)]
    found: list[Problem] = []
    with ctx.obj.waiting("checking ..."):
        for package in packages:
            found += _checked(package, selection, run=run)
    failed = any(problem.severity == "error" for problem in found)
    REPORTS[form](found, failed)
    output: Output = ctx.obj
    output.note(_count(len(packages), found))
    if failed:
        raise typer.Exit(INVALID)


def _checked(package: Path, selection: dict[str, Any], *, run: bool) -> Sequence[Problem]:
    """Problems of one package; it runs only where it has no error."""
    import genai_pipeline as gp
    from genai_pipeline.cli.trial import problems_of

    spec, problems = gp.validate(package, **selection)
    if not run or spec is None or any(problem.severity == "error" for problem in problems):
        return problems
    return [*problems, *problems_of(spec, package, selection)]


def packages_of(name: str) -> Sequence[Path]:
    """The packages that a path or a name means. Raises PackageNotFoundError for a known name that is not pulled."""
    from genai_pipeline.importers.hub_names import is_hub_name
    from genai_pipeline.importers.pull import find_entry, resolve
    from genai_pipeline.importers.recipes import known_names

    if is_hub_name(name):
        return [resolve(name)]
    path = Path(name)
    if name not in known_names() or os.path.lexists(path):
        return packages_below(path)
    entry = find_entry(name)
    if not entry.cached:
        raise PackageNotFoundError(
            f"package {name} is not in the cache, so there is nothing to check", hint=f"genai-pipeline pull {name}"
        )
    return list(entry.cached.values())


def packages_below(path: Path) -> Sequence[Path]:
    """The package at ``path``, or all packages in the folders below it; ``path`` itself when there is none.

    Hidden folders and folders that tools fill with other people's files are not searched.
    """
    if not path.is_dir() or (path / _METADATA_FILE).exists():
        return [path]
    found = []
    for folder, inner, files in os.walk(path):
        inner[:] = [name for name in inner if not name.startswith(".") and name not in _NOT_SEARCHED]
        if _METADATA_FILE in files:
            found.append(Path(folder))
    return sorted(found) or [path]


def _count(packages: int, problems: Sequence[Problem]) -> str:
    errors = sum(problem.severity == "error" for problem in problems)
    checked = f"{packages} package{'s' if packages != 1 else ''} checked"
    if not problems:
        return f"{checked}, no problems"
    return f"{checked}, {errors} error{'s' if errors != 1 else ''}, {len(problems) - errors} other findings"

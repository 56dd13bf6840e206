"""Assembles the command from its modules, and turns every way a command can end into its exit code.

0 done, 1 run failed, 2 usage, 3 package invalid, 4 refused for capacity, 5 provider unavailable, 130 interrupted.
The modules of the commands import nothing heavy; what a command needs is imported when it runs.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from genai_pipeline.cli import bench, doctor, importing, inspecting, listing, pulling, running, validating
from genai_pipeline.cli.entry import INTERRUPTED
from genai_pipeline.cli.output import Output, discard_stdout, print_error
from genai_pipeline.cli.reports import text_lines
from genai_pipeline.errors import GenaiError, PackageInvalidError

PROGRAM = "genai-pipeline"


class _Guarded(TyperGroup):
    """The command group: errors made for people are shown as such, without a traceback unless -v asks for it."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; raises typer.Exit with the code of DESIGN when it ends early."""
        try:
            return super().invoke(ctx)
        except GenaiError as error:
            output = ctx.obj if isinstance(ctx.obj, Output) else Output()
            if output.verbosity > 0:
                traceback.print_exc()
            if isinstance(error, PackageInvalidError):
                print_error("\n".join(text_lines(error.problems)))
            output.failure(error)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            discard_stdout()
            raise typer.Exit(0) from error


app = typer.Typer(
    cls=_Guarded,
    name=PROGRAM,
    help="Run generative models described by a YAML file.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"{PROGRAM} {doctor.version_of(PROGRAM) or 'from a source tree'}")
        raise typer.Exit


@app.callback()
def _global_options(
    ctx: typer.Context,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Logs, and tracebacks with errors.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Errors only: no notes, no progress.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if verbose and quiet:
        raise typer.BadParameter("-v and -q exclude each other")
    ctx.obj = Output(verbosity=int(verbose) - int(quiet))
    ctx.obj.set_up()


for _module in (running, validating, inspecting, importing, pulling, listing, bench, doctor):
    _module.register(app)


def run_command(arguments: Sequence[str]) -> int:
    """Run the command with these arguments and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a character the terminal's encoding lacks is shown as its escape
            stream.reconfigure(errors="backslashreplace")
    try:
        app(list(arguments), prog_name=PROGRAM)
    except SystemExit as ended:
        code = _exit_code(ended)
    else:
        code = 0
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    return code


def _exit_code(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    print_error(str(ended.code))
    return 1

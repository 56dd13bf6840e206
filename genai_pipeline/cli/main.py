"""Assembles the command from its modules, and turns every way a command can end into its exit code.

0 done, 1 run failed, 2 usage, 3 package invalid, 4 refused for capacity, 5 provider unavailable, 130 interrupted.
The modules of the commands import nothing heavy; what a command needs is imported when it runs.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from genai_pipeline.cli import (
    bench,
    doctor,
    embedding,
    importing,
    initialising,
    inspecting,
    listing,
    packing,
    pulling,
    running,
    scoring,
    serve,
    speaking,
    transcribing,
    validating,
    verifying,
)
from genai_pipeline.cli.chat import command as chatting
from genai_pipeline.cli.commands import HelpfulGroup, complete, flags, set_verbosity, with_flags
from genai_pipeline.cli.entry import INTERRUPTED
from genai_pipeline.cli.output import Output, cannot_write, discard_stdout, print_error
from genai_pipeline.cli.reports import text_lines
from genai_pipeline.cli.usage import UsageError, usage_error
from genai_pipeline.errors import ConfigInvalidError, GenaiError, OutputError, PackageInvalidError

PROGRAM = "genai-pipeline"


class _Guarded(HelpfulGroup):
    """The command group: errors made for people are shown as such, without a traceback unless -v asks for it."""

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Parse the options before the command; ``--help`` and ``--version`` write their text here."""
        with _endings(lambda error: _show(Output(), error, {})):
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; raises typer.Exit with the code of DESIGN when it ends early."""

        def show(error: GenaiError) -> None:
            names = flags(self.commands.get(ctx.invoked_subcommand or ""))
            _show(ctx.obj if isinstance(ctx.obj, Output) else Output(), error, names)

        with _endings(show):
            return super().invoke(ctx)


@contextmanager
def _endings(show: Callable[[GenaiError], None]) -> Iterator[None]:
    """Turn the ways in which a command ends early into typer.Exit with their code."""
    try:
        yield
    except GenaiError as error:
        show(error)
        raise typer.Exit(error.exit_code) from error
    except UsageError as error:
        wrong = usage_error(error)
        show(wrong)
        raise typer.Exit(wrong.exit_code) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error
    except BrokenPipeError as error:
        discard_stdout()
        raise typer.Exit(0) from error


def _show(output: Output, error: GenaiError, names: dict[str, str]) -> None:
    if output.verbosity > 0:
        traceback.print_exc()
    if isinstance(error, PackageInvalidError | ConfigInvalidError):
        print_error("\n".join(text_lines(error.problems)))
    output.failure(with_flags(error.message, names), with_flags(error.hint, names))


app = typer.Typer(
    cls=_Guarded,
    name=PROGRAM,
    help="Run generative models described by a YAML file.",
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
    set_verbosity(ctx, verbose, quiet)


for _module in (
    running,
    chatting,
    transcribing,
    speaking,
    embedding,
    scoring,
    serve,
    validating,
    inspecting,
    initialising,
    importing,
    pulling,
    listing,
    verifying,
    packing,
    bench,
    doctor,
):
    _module.register(app)
complete(app)


def run_command(arguments: Sequence[str]) -> int:
    """Run the command with these arguments and return its exit code."""
    if sys.stdout is None:
        error = OutputError("stdout is closed, so there is no place for the output", hint="redirect it to /dev/null")
        _show(Output(), error, {})
        return error.exit_code
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a character the terminal's encoding lacks is shown as its escape
            stream.reconfigure(errors="backslashreplace")
    try:
        app(list(arguments), prog_name=PROGRAM)
    except SystemExit as ended:
        code = _exit_code(ended)
    except OSError as error:  # of --help and --version
        code = _refused_output(error)
    else:
        code = 0
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    except OSError as error:
        return _refused_output(error)
    return code


def _refused_output(error: OSError) -> int:
    refused = cannot_write(error)
    _show(Output(), refused, {})
    return refused.exit_code


def _exit_code(ended: SystemExit) -> int:
    if isinstance(ended.__context__, BrokenPipeError):  # rich ends the process so when the reader of --help has left
        return 0
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    print_error(str(ended.code))
    return 1

"""What every command has besides its own options: -v and -q behind its name too, and flags by the names of the API."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from genai_pipeline.cli.output import Output


class HelpfulGroup(TyperGroup):
    """A group that shows its help on stderr when no command is named: that is wrong usage, not a product."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; raises typer.Exit with code 2 for no arguments at all."""
        if not args and not ctx.resilient_parsing:
            with redirect_stdout(sys.stderr):
                typer.echo(ctx.get_help())
            raise typer.Exit(2)
        return super().parse_args(ctx, args)


def set_verbosity(ctx: typer.Context, verbose: bool, quiet: bool) -> None:
    """Settle how talkative stderr is. Raises BadParameter when both are asked for, here and before together."""
    before = ctx.obj.verbosity if isinstance(ctx.obj, Output) else 0
    if (verbose or before > 0) and (quiet or before < 0):
        raise typer.BadParameter("-v and -q exclude each other")
    output = Output(verbosity=int(verbose) - int(quiet) or before)
    output.set_up()
    for context in (ctx, ctx.find_root()):
        context.obj = output


def _louder(ctx: typer.Context, asked: bool) -> None:
    set_verbosity(ctx, verbose=asked, quiet=False)


def _quieter(ctx: typer.Context, asked: bool) -> None:
    set_verbosity(ctx, verbose=False, quiet=asked)


_VERBOSITY = {
    "verbose": Annotated[
        bool, typer.Option("-v", "--verbose", callback=_louder, help="Logs, and tracebacks with errors.")
    ],
    "quiet": Annotated[
        bool, typer.Option("-q", "--quiet", callback=_quieter, help="Errors only: no notes, no progress.")
    ],
}


def complete(app: typer.Typer) -> None:
    """Give every command of the app, at any depth, -v and -q."""
    for command in app.registered_commands:
        assert command.callback is not None
        command.callback = _with_verbosity(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            complete(group.typer_instance)


def _with_verbosity(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with two more options, whose callbacks have done all when it is called."""
    signature = inspect.signature(command, eval_str=True)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in _VERBOSITY.items()
    ]

    @functools.wraps(command)
    def call(*args: Any, **given: Any) -> Any:
        return command(*args, **{name: value for name, value in given.items() if name not in _VERBOSITY})

    parameters = [*signature.parameters.values(), *more]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def flags(command: Any) -> dict[str, str]:
    """The flags of a command by the names that the Python API has for them."""
    found = {}
    for parameter in command.params if command is not None else ():
        long = [flag for flag in parameter.opts if flag.startswith("--")]
        if long:
            found[parameter.name] = long[0]
            found[f"{parameter.name}s"] = long[0]  # a list of the API is an option that is repeated
    return found


def with_flags(text: str, names: Mapping[str, str]) -> str:
    """The text with the API's names of options replaced by flags.

    A name that is an ordinary word too counts only where a message begins with it.
    """
    found = re.match(r"[a-z_]+(?= (?:must|is|has|takes|cannot|goes)\b)", text)
    if found and found[0] in names:
        text = names[found[0]] + text[found.end() :]
    for name in sorted(names, key=len, reverse=True):
        if "_" in name:
            text = re.sub(rf"(?<![\w./-]){name}\b", names[name], text)
    return text

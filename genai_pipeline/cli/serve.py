"""``genai-pipeline serve PACKAGE...``: an HTTP server with OpenAI's and Anthropic's interfaces."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.entry import INTERRUPTED
from genai_pipeline.cli.option_groups import OptionGroup, off_switch, option, switch, takes
from genai_pipeline.errors import ExtraMissingError

Packages = Annotated[
    list[str] | None,
    typer.Argument(help="Folders, metadata files or names from 'list'; NAME=PACKAGE serves one by another name."),
]

ADDRESS: Final = OptionGroup(
    "Address and keys",
    {
        "config": option(Path, metavar="FILE", help="A YAML file with all of this and more; options here win."),
        "host": option(str, help="Address to listen on (default: 127.0.0.1, this machine alone)."),
        "port": option(int, help="Port (default: 8000); 0 takes a free one."),
        "admin_port": option(int, help="Metrics and administration on a port of their own."),
        "metrics": off_switch("--no-metrics", "No /metrics."),
        "admin": off_switch("--no-admin", "No /admin."),
        "api_key_file": option(Path, metavar="FILE", help="One key a line: SECRET, or NAME SECRET."),
        "open_to_all": switch("--open-to-all", "Let anybody in the network use it, without keys."),
        "cors": option(list[str], "--cors", metavar="ORIGIN", help="Let web pages of this origin use it (repeatable)."),
        "hosts": option(list[str], "--allow-host", metavar="NAME", help="A name it is reached by (repeatable)."),
    },
)

OPERATION: Final = OptionGroup(
    "Operation",
    {
        "models_memory": option(str, metavar="SIZE", help="For weights and state of all loaded packages (8GiB)."),
        "preload": option(Literal["first", "all", "none"], help="What to load at the start (default: first)."),
        "warm_up": off_switch("--no-warm-up", "Do not run a token through a package that was loaded."),
        "max_requests": option(int, help="Requests under way at once; more are turned away (default: 256)."),
        "request_seconds": option(float, help="Longest time of a request (default: 600)."),
        "drain_seconds": option(float, help="Time that requests have to finish on SIGTERM (default: 30)."),
        "log_format": option(Literal["json", "text"], help="Of the log on stderr (default: json)."),
    },
)

LOADING: Final = OptionGroup(
    groups.LOADING.title,
    {
        **groups.LOADING.options,
        "max_batch": option(int, help="Requests that run at once (default: 16)."),
        "max_queue": option(int, help="Requests that may wait beyond these (default: any number)."),
        "policy": option(str, help="Who goes first: priority, first_come or fair_share (shares by key)."),
    },
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


@takes(ADDRESS, OPERATION, LOADING)
def serve(ctx: typer.Context, packages: Packages = None, **options: Any) -> None:
    """Serve packages over HTTP, with OpenAI's and Anthropic's interfaces.

    Keys also come from the environment: GENAI_PIPELINE_API_KEYS, separated by commas.
    """
    _require()
    import logging

    from genai_pipeline.server import logs, run, settings

    given = {name: value for group in (ADDRESS, OPERATION) for name, value in group.given(options).items()}
    config = settings.from_command(packages or (), LOADING.given(options), given)
    level = {-1: logging.ERROR, 0: logging.INFO}.get(ctx.obj.verbosity, logging.DEBUG)
    logs.set_up(config.log_format, level)
    if run.serve(config) == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def _require() -> None:
    """Refuse where the server's libraries are not installed. Raises ExtraMissingError."""
    from importlib.util import find_spec

    for library in ("starlette", "uvicorn", "prometheus_client"):
        if find_spec(library) is None:
            raise ExtraMissingError(f"serve needs {library}", hint="pip install 'genai-pipeline[server]'")

"""``genai-pipeline run PACKAGE PROMPT``: one text request, streamed to stdout or printed as one JSON object."""

from __future__ import annotations

from typing import Any

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.answers import print_choices, print_json, print_stats, print_stream
from genai_pipeline.cli.asking import question
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.packages import loaded
from genai_pipeline.cli.prompt import prompt_text
from genai_pipeline.cli.run_request import RunRequest


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


@takes(
    groups.PROMPT,
    groups.LENGTH,
    groups.CHOOSING,
    groups.PENALTIES,
    groups.FORM,
    groups.TOOLS,
    groups.LOGPROBS,
    groups.QUEUE,
    groups.LOADING,
    groups.SPECULATION,
)
def run(
    ctx: typer.Context,
    package: groups.Package,
    prompt: groups.Prompt = None,
    as_json: groups.AsJson = False,
    stats: groups.Stats = False,
    **options: Any,
) -> None:
    """Run one request and stream the answer to stdout.

    Text goes to stdout, then tool calls, one JSON line each; reasoning goes to stderr. Of the options that take
    @FILE, any other value is the text itself.
    """
    asked = RunRequest.of(options, as_json=as_json)
    text = prompt_text(package, prompt)
    with (
        loaded(ctx.obj, package, asked.loading) as pipe,
        question(pipe, text, asked.options, asked.session) as ready,
    ):
        several = pipe.options(**{name: asked.options[name] for name in ("n",) if name in asked.options}).n > 1
        show = print_json if as_json else print_choices if several else print_stream
        usage, timings = show(ctx.obj, ready)
    if stats:
        print_stats(ctx.obj, usage, timings)

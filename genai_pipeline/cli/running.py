"""``genai-pipeline run PACKAGE PROMPT``: one text request, streamed to stdout or printed as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.answers import print_choices, print_json, print_stats, print_stream
from genai_pipeline.cli.asking import question
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.outputs import answers_in_text, check_out, run_inputs, show_outputs
from genai_pipeline.cli.packages import loaded, takes_text
from genai_pipeline.cli.prompt import prompt_text
from genai_pipeline.cli.run_request import RunRequest

if TYPE_CHECKING:
    from genai_pipeline.cli.output import Output
    from genai_pipeline.pipeline import Pipeline


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
    out: groups.Out = None,
    **options: Any,
) -> None:
    """Run one request and stream the answer to stdout.

    Text goes to stdout, then tool calls, one JSON line each; reasoning goes to stderr. Of the options that take
    @FILE, any other value is the text itself. Sounds and pictures that a package gives go to --out.
    """
    asked = RunRequest.of(options, as_json=as_json)
    text = prompt_text(package, prompt) if prompt is not None or takes_text(package) else None
    with loaded(ctx.obj, package, asked.loading) as pipe:
        if answers_in_text(pipe.plan):
            check_out(pipe.plan, out)
            _answer(ctx.obj, pipe, text, asked, as_json=as_json, stats=stats)
        else:
            path = check_out(pipe.plan, out)
            inputs, rest = run_inputs(pipe.plan, text, asked.options)
            with ctx.obj.waiting("working ..."):
                outputs = pipe.run(inputs, **rest)
            show_outputs(outputs, path, as_json=as_json)


def _answer(output: Output, pipe: Pipeline, text: str | None, asked: RunRequest, *, as_json: bool, stats: bool) -> None:
    """Put a question to a model that answers in text, and print what comes."""
    with question(pipe, text, asked.options, asked.session) as ready:
        several = pipe.options(**{name: asked.options[name] for name in ("n",) if name in asked.options}).n > 1
        show = print_json if as_json else print_choices if several else print_stream
        usage, timings = show(output, ready)
    if stats:
        print_stats(output, usage, timings)

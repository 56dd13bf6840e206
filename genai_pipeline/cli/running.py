"""``genai-pipeline run PACKAGE PROMPT``: one request; text is streamed to stdout, other outputs printed or saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.answers import print_choices, print_json, print_stats, print_stream
from genai_pipeline.cli.asking import Question, named_question, question
from genai_pipeline.cli.media_in import names_in, naming
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.outputs import answer_of, check_out, check_whole, plain_outputs, run_inputs, show_outputs
from genai_pipeline.cli.packages import declared, loaded, texts_of
from genai_pipeline.cli.prompt import optional_prompt
from genai_pipeline.cli.run_request import RunRequest
from genai_pipeline.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from genai_pipeline.cli.answers import Counts
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
    _require(asked.loading)
    spec = declared(package, asked.loading.get("precision"))
    path = check_out(spec, out)
    text = optional_prompt(spec, prompt)
    with loaded(ctx.obj, package, asked.loading) as pipe, naming(names_in(pipe.plan.package, asked.options)):
        show = _answer if answer_of(pipe.plan.package) is not None else _outputs
        usage, timings = show(ctx.obj, pipe, text, asked, path, as_json)
        if stats:
            print_stats(ctx.obj, usage, timings)


def _require(loading: Mapping[str, Any]) -> None:
    """Refuse a runtime or provider that is not here before a package of a hub is fetched to be read."""
    from genai_pipeline.loading import load_options, require_runtime

    require_runtime(load_options({name: value for name, value in loading.items() if name != "precision"}))


def _answer(
    output: Output, pipe: Pipeline, text: str | None, asked: RunRequest, out: Path | None, as_json: bool
) -> Counts:
    """Put a question to a model that answers in text, and print what comes."""
    with _question(pipe, text, asked) as ready:
        several = pipe.options(**{name: asked.options[name] for name in ("n",) if name in asked.options}).n > 1
        show = print_json if as_json else print_choices if several else print_stream
        shown = show(output, ready, lambda outputs: _others(pipe, outputs, out))
    return shown


@contextmanager
def _question(pipe: Pipeline, text: str | None, asked: RunRequest) -> Iterator[Question]:
    if texts_of(pipe.plan.package):
        with question(pipe, text, asked.options, asked.session) as ready:
            yield ready
    else:
        yield named_question(pipe, *_named(pipe, text, asked))


def _others(pipe: Pipeline, outputs: Mapping[str, Any], out: Path | None) -> dict[str, Any]:
    """What a package gives beside its answer, as JSON has it; sounds and pictures are saved."""
    answer = answer_of(pipe.plan.package)
    return plain_outputs({name: value for name, value in outputs.items() if name != answer}, out)


def _named(pipe: Pipeline, text: str | None, asked: RunRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    if asked.session is not None:
        message = f"'{pipe.plan.package.name}' holds no conversation that --session could keep"
        raise RequestError(message, param="session")
    return run_inputs(pipe.plan.package, text, asked.options)


def _outputs(
    output: Output, pipe: Pipeline, text: str | None, asked: RunRequest, out: Path | None, as_json: bool
) -> Counts:
    """Run what gives other things than an answer, and print or save them."""
    from genai_pipeline.engine.collect import collect_result

    inputs, options = _named(pipe, text, asked)
    check_whole(pipe.plan.package, options)
    with output.waiting("working ..."), pipe.stream_run(inputs, **options) as events:
        result = collect_result(events)
    show_outputs(result.outputs, out, as_json=as_json)
    for note in result.notes:
        output.note(f"note: {note}")
    return result.usage, result.timings

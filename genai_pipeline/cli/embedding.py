"""``genai-pipeline embed PACKAGE TEXT...``: vectors of texts, as JSON lines or as an npy file."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.media_out import binary_out, check_place
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.output import json_line
from genai_pipeline.cli.packages import loaded
from genai_pipeline.cli.task_options import TaskRequest
from genai_pipeline.errors import OptionError, RequestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genai_pipeline.pipeline import Pipeline

_TOGETHER = 256  # texts that are asked for at a time


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("embed")(embed)


@takes(groups.PROMPT.only("parameters"), groups.QUEUE, groups.TASK_LOADING)
def embed(
    ctx: typer.Context,
    package: groups.Package,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; none or '-' reads lines from stdin.")] = None,
    form: Annotated[Literal["jsonl", "npy"], typer.Option("--format", help="JSON lines, or one array.")] = "jsonl",
    dimensions: Annotated[int | None, typer.Option(min=1, help="Only the first ones, scaled to length 1.")] = None,
    out: Annotated[str | None, typer.Option("--out", "-o", help="A file (default: stdout, '-').")] = None,
    **options: Any,
) -> None:
    """Turn texts into vectors.

    As JSON lines, each text stands beside its vector, in order; an npy file has a row of float32 for each. Of stdin,
    every line is a text, an empty one too, so that row i belongs to line i.
    """
    if form == "npy" and out is None and sys.stdout.isatty():
        raise OptionError("an array is not for a terminal", param="out", hint="name a file with --out, or pipe it")
    check_place(out)
    asked = TaskRequest.of(options)
    lines = _lines() if not texts or texts == ["-"] else iter(texts)
    with loaded(ctx.obj, package, asked.loading) as pipe, ctx.obj.counting("texts") as count:
        batches = _vectors(pipe, lines, dimensions, asked, count)
        if form == "npy":
            _write_npy(out, [vectors for _, vectors in batches])
        else:
            _write_lines(out, batches)


def _vectors(
    pipe: Pipeline, lines: Iterator[str], dimensions: int | None, asked: TaskRequest, count: Callable[[int], None]
) -> Iterator[tuple[list[str], NDArray[Any]]]:
    """Some texts at a time, with their vectors [n, d]."""
    from genai_pipeline.tasks import embedding

    embedding(pipe.plan.package)  # what does not embed says so before stdin is waited for
    done = 0
    while some := list(itertools.islice(lines, _TOGETHER)):
        yield some, pipe.embed(some, dimensions=dimensions, **asked.options(pipe.plan.package))
        done += len(some)
        count(done)


def _lines() -> Iterator[str]:
    """The lines of stdin without their ends; an empty one is a text too. Raises RequestError for what is no text."""
    if sys.stdin is None:
        raise RequestError("there is no text: stdin is closed", param="texts")
    try:
        for number, line in enumerate(sys.stdin.buffer, 1):
            yield _decoded(line, number)
    except OSError as error:  # a folder, or a terminal that has gone
        raise RequestError(f"stdin cannot be read: {error.strerror or error}", param="texts") from error


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise RequestError(f"line {number} of stdin is not UTF-8: {error}", param="texts") from error


def _write_lines(out: str | None, batches: Iterable[tuple[Sequence[str], NDArray[Any]]]) -> None:
    with binary_out(out) as file:
        for texts, vectors in batches:
            for text, vector in zip(texts, vectors.tolist(), strict=True):
                file.write(json_line({"text": text, "embedding": vector}).encode())
            file.flush()


def _write_npy(out: str | None, found: Sequence[NDArray[Any]]) -> None:
    import numpy as np

    if not found:
        raise RequestError("there is no text to embed", param="texts")
    with binary_out(out) as file:
        np.save(file, np.concatenate(found))

"""``genai-pipeline speak PACKAGE TEXT``: a text as sound, written while it is made."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.media_out import binary_out
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.packages import loaded
from genai_pipeline.cli.prompt import prompt_text
from genai_pipeline.cli.task_options import TaskRequest
from genai_pipeline.errors import OptionError

if TYPE_CHECKING:
    from genai_pipeline.ops.media import Audio


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("speak")(speak)


@takes(groups.PROMPT.only("parameters"), groups.CHOOSING.only("seed"), groups.QUEUE, groups.TASK_LOADING)
def speak(
    ctx: typer.Context,
    package: groups.Package,
    text: groups.Prompt = None,
    out: Annotated[str | None, typer.Option("--out", "-o", help="A WAV file (default: stdout, '-').")] = None,
    raw: Annotated[bool, typer.Option("--pcm", help="Bare 16-bit samples instead of a WAV file.")] = False,
    **options: Any,
) -> None:
    """Speak a text.

    The sound is written piece by piece, as it is made: stdout can be piped into a player. The time to the first
    piece, and the time taken per second of sound, go to stderr.
    """
    asked = TaskRequest.of(options)
    if out is None and sys.stdout.isatty():
        raise OptionError("a sound is not for a terminal", param="out", hint="name a file with --out, or pipe it")
    spoken = prompt_text(package, text)
    with loaded(ctx.obj, package, asked.loading) as pipe:
        begin = time.perf_counter()
        pieces = pipe.stream_speech(spoken, **asked.options())
        with closing(pieces), ctx.obj.waiting("speaking ..."):  # type: ignore[type-var]
            first = next(pieces)
            first_after = time.perf_counter() - begin
            with binary_out(out) as file:
                seconds = _write(file, first, pieces, wav=not raw)
        took = time.perf_counter() - begin
    factor = f", {took / seconds:.2f} of its length" if seconds else ""
    ctx.obj.note(f"{seconds:.1f} s of sound in {took:.1f} s{factor}; first after {first_after:.2f} s")


def _write(file: BinaryIO, first: Audio, more: Iterator[Audio], *, wav: bool) -> float:
    """Write pieces as they come; gives the seconds of sound. A file's header gets its length in the end."""
    from genai_pipeline.ops.media import wav_header

    count = 0
    if wav:
        file.write(wav_header(first.rate, first.channels))
    for piece in itertools.chain([first], more):
        data = piece.pcm()
        file.write(data)
        file.flush()
        count += len(data)
    if wav and file.seekable():
        file.seek(0)
        file.write(wav_header(first.rate, first.channels, count))
    return count / (2 * first.channels * first.rate)

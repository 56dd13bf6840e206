"""``genai-pipeline transcribe PACKAGE FILE...``: what is said in sounds, or in a live stream on stdin."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.output import Output, write, write_json_line
from genai_pipeline.cli.packages import loaded
from genai_pipeline.cli.task_options import TaskRequest
from genai_pipeline.errors import OptionError, RequestError

if TYPE_CHECKING:
    from genai_pipeline.ops.timed_text import Segment
    from genai_pipeline.pipeline import Pipeline
    from genai_pipeline.tasks import Transcript

Format = Literal["text", "json", "srt", "vtt"]
_BLOCK_SECONDS = 0.1  # of a live stream


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("transcribe")(transcribe)


@takes(groups.PROMPT.only("parameters"), groups.QUEUE, groups.TASK_LOADING)
def transcribe(
    ctx: typer.Context,
    package: groups.Package,
    files: Annotated[list[str], typer.Argument(help="Sounds; '-' reads a live stream from stdin: WAV, or see --rate.")],
    form: Annotated[Format, typer.Option("--format", help="What is printed.")] = "text",
    rate: Annotated[
        int | None, typer.Option(min=1, help="With '-': stdin has bare 16-bit samples, so many per second.")
    ] = None,
    **options: Any,
) -> None:
    """Print what is said.

    Several files run together; their texts come in order, each behind its file's name, and as JSON in one line each.
    A live stream is printed as it is understood. The time taken per second of sound goes to stderr.
    """
    live = _check(files, form, rate)
    asked = TaskRequest.of(options)
    with loaded(ctx.obj, package, asked.loading) as pipe:
        if live:
            _stream(ctx.obj, pipe, form, rate, asked)
        else:
            _files(ctx.obj, pipe, files, form, asked)


def _check(files: Sequence[str], form: Format, rate: int | None) -> bool:
    """Whether stdin is read. Raises OptionError for what does not go together."""
    live = "-" in files
    if live and len(files) > 1:
        raise OptionError("stdin ('-') and files exclude each other", param="files")
    if rate is not None and not live:
        raise OptionError("--rate is for bare samples on stdin", param="rate", hint="give '-' in place of files")
    if form in ("srt", "vtt") and len(files) > 1:
        raise OptionError(f"--format {form} takes one file", param="format", hint="run it once per file")
    return live


def _files(output: Output, pipe: Pipeline, files: Sequence[str], form: Format, asked: TaskRequest) -> None:
    from genai_pipeline.engine.collect import collect_result
    from genai_pipeline.tasks import Transcription

    begin, seconds = time.perf_counter(), 0.0
    with ExitStack() as stack, output.waiting("listening ..."):
        started = [Transcription.start(pipe, Path(file), asked.options()) for file in files]
        for one in started:
            stack.enter_context(one.stream)
        for file, one in zip(files, started, strict=True):
            transcript = one.read(collect_result(one.stream))
            seconds += transcript.seconds
            _print(file if len(files) > 1 else None, transcript, form)
    _note_factor(output, time.perf_counter() - begin, seconds)


def _print(file: str | None, transcript: Transcript, form: Format) -> None:
    from genai_pipeline.ops.timed_text import to_srt, to_vtt

    if form == "json":
        named = {} if file is None else {"file": file}
        write_json_line({**named, **transcript.to_dict()})
    elif form == "text":
        write(f"{transcript.text}\n" if file is None else f"{file}\t{transcript.text}\n")
    else:
        write((to_srt if form == "srt" else to_vtt)(transcript.timed()))


def _stream(output: Output, pipe: Pipeline, form: Format, rate: int | None, asked: TaskRequest) -> None:
    from genai_pipeline.live_speech import transcribe_live
    from genai_pipeline.preprocess.audio.live import PcmReader

    if sys.stdin is None:
        raise RequestError("there is no sound: stdin is closed", param="files")
    to = 16_000
    reader = PcmReader(sys.stdin.buffer, int(_BLOCK_SECONDS * to), rate=rate, to=to, what="stdin")
    blocks = _Counted(_ahead(reader))
    begin = time.perf_counter()
    segments = transcribe_live(lambda sound: pipe.transcribe(sound, **asked.options()), blocks, to)
    for piece in _written(segments, form):
        write(piece)
    _note_factor(output, time.perf_counter() - begin, blocks.count / to)


def _written(segments: Iterator[Segment], form: Format) -> Iterator[str]:
    """Each segment as it is written."""
    from genai_pipeline.cli.output import json_line
    from genai_pipeline.ops.timed_text import srt_cues, vtt_cues

    if form == "srt":
        return srt_cues(segments)
    if form == "vtt":
        return vtt_cues(segments)
    if form == "json":
        return (json_line(segment.to_dict()) for segment in segments)
    return (f"{segment.text.strip()}\n" for segment in segments)


class _Counted:
    """Blocks, and how many samples they had."""

    def __init__(self, blocks: Iterable[Any]) -> None:
        self._blocks = blocks
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        for block in self._blocks:
            self.count += len(block)
            yield block


def _ahead(blocks: Iterable[Any]) -> Iterator[Any]:
    """Blocks read by a thread of their own, so that whoever writes the stream never waits for a transcription."""
    import queue
    import threading

    read: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def fill() -> None:
        try:
            for block in blocks:
                read.put(block)
            read.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again where the blocks are read
            read.put(error)

    threading.Thread(target=fill, daemon=True).start()
    while (item := read.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


def _note_factor(output: Output, took: float, seconds: float) -> None:
    factor = f", {took / seconds:.2f} of its length" if seconds else ""
    output.note(f"{seconds:.1f} s of sound in {took:.1f} s{factor}")

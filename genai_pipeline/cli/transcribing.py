"""``genai-pipeline transcribe PACKAGE FILE...``: what is said in sounds, or in a live stream on stdin."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.media_in import check_file, naming
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.output import Output, json_line, write, write_json_line
from genai_pipeline.cli.packages import loaded
from genai_pipeline.cli.task_options import TaskRequest, note_factor
from genai_pipeline.errors import (
    EngineClosedError,
    EngineFailedError,
    GenaiError,
    MediaError,
    OptionError,
    OutputError,
    RequestError,
)

if TYPE_CHECKING:
    from genai_pipeline.ops.timed_text import Segment
    from genai_pipeline.pipeline import Pipeline
    from genai_pipeline.preprocess.audio.sound import FloatArray
    from genai_pipeline.tasks import Transcript, Transcription

Format = Literal["text", "json", "srt", "vtt"]
_MOST_FILES: Final = 8  # under way at once,
_MOST_SECONDS: Final = 600  # unless they have this much sound: all of it is in memory
_LIVE_RATE: Final = 16_000  # of a stream: what there is of a voice


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

    Several files run together; their texts come in order, a line each behind the file's name, or a JSON object in a
    line. A missing file is refused before anything runs; one that is no sound is named on stderr, and the others go
    on. A live stream is printed as it is understood, a segment in each line. The time taken per second of sound goes
    to stderr.
    """
    live = _check(files, form, rate)
    asked = TaskRequest.of(options)
    with loaded(ctx.obj, package, asked.loading) as pipe:
        request = asked.options(pipe.plan.package)
        if live:
            _stream(ctx.obj, pipe, form, rate, request)
        else:
            _Files(ctx.obj, pipe, form, request, many=len(files) > 1).print(files)


def _check(files: Sequence[str], form: Format, rate: int | None) -> bool:
    """Whether stdin is read. Raises OptionError for what does not go together, MediaError for what is no file."""
    live = "-" in files
    if live and len(files) > 1:
        raise OptionError("stdin ('-') and files exclude each other", param="files")
    if rate is not None and not live:
        raise OptionError("--rate is for bare samples on stdin", param="rate", hint="give '-' in place of files")
    if form in ("srt", "vtt") and len(files) > 1:
        raise OptionError(f"--format {form} takes one file", param="format", hint="run it once per file")
    if live and sys.stdin is None:
        raise RequestError("there is no sound: stdin is closed", param="files")
    for file in () if live else files:
        check_file(file)
    return live


@dataclass(slots=True)
class _Files:
    """Transcribes files, several at a time, and prints them in order."""

    output: Output
    pipe: Pipeline
    form: Format
    request: Mapping[str, Any]
    many: bool
    seconds: float = 0.0
    code: int = 0  # of the first file that failed

    def print(self, files: Sequence[str]) -> None:
        """Print what is said in each. Raises the error of a single file; Exit where one of several failed."""
        begin = time.perf_counter()
        with closing(self._begun(files)) as begun:
            for number, (file, under_way) in enumerate(begun, 1):
                counted = f" ({number} of {len(files)})" if self.many else ""
                waiting = self.output.waiting(f"listening to {Path(file).name}{counted} ...")
                with under_way, self._surviving(file, GenaiError), waiting as came:
                    transcript = under_way.transcript()
                    came()
                    self.seconds += transcript.seconds
                    _print(file if self.many else None, transcript, self.form)
        note_factor(self.output, time.perf_counter() - begin, self.seconds)
        if self.code:
            raise typer.Exit(self.code)

    def _begun(self, files: Sequence[str]) -> Generator[tuple[str, Transcription]]:
        """Each file's transcription in order; some are begun ahead, as many as memory should hold."""
        ahead: deque[tuple[str, Transcription]] = deque()
        try:
            for file in files:
                with self._surviving(file, MediaError):
                    ahead.append((file, self.pipe.transcription(Path(file), **self.request)))
                while len(ahead) >= _MOST_FILES or sum(begun.seconds for _, begun in ahead) > _MOST_SECONDS:
                    yield ahead.popleft()
            while ahead:
                yield ahead.popleft()
        finally:
            for _, begun in ahead:
                begun.close()

    @contextmanager
    def _surviving(self, file: str, of: type[GenaiError]) -> Iterator[None]:
        """Among several files, one that fails does not end the others, unless nothing could come any more."""
        from genai_pipeline.tasks import transcription

        name = transcription(self.pipe.plan.package).input
        try:
            with naming({name: file}):
                yield
        except (EngineClosedError, EngineFailedError, OutputError):
            raise
        except of as error:
            if not self.many:
                raise
            self.output.failure(error.message if file in error.message else f"{file}: {error.message}", error.hint)
            self.code = self.code or error.exit_code


def _print(file: str | None, transcript: Transcript, form: Format) -> None:
    from genai_pipeline.ops.timed_text import to_srt, to_vtt

    if form == "json":
        named = {} if file is None else {"file": file}
        write_json_line({**named, **transcript.to_dict()})
    elif form == "text":
        write(f"{transcript.text}\n" if file is None else f"{file}\t{' '.join(transcript.text.split())}\n")
    else:
        write((to_srt if form == "srt" else to_vtt)(transcript.timed()))


def _stream(output: Output, pipe: Pipeline, form: Format, rate: int | None, request: Mapping[str, Any]) -> None:
    from genai_pipeline.live_speech import read_ahead, transcribe_live
    from genai_pipeline.preprocess.audio.live import PcmReader
    from genai_pipeline.tasks import transcription

    begin = time.perf_counter()
    transcription(pipe.plan.package)  # what does not transcribe says so before stdin is waited for
    stdin = sys.stdin.buffer
    bytes_ = getattr(
        stdin, "raw", stdin
    )  # the thread that reads may be waiting when the process ends: nothing is locked
    reader = PcmReader(bytes_, _LIVE_RATE // 10, rate=rate, to=_LIVE_RATE, what="stdin")
    blocks = _Counted(read_ahead(reader))
    segments = transcribe_live(lambda sound: pipe.transcribe(sound, **request), blocks, _LIVE_RATE)
    for piece in _written(segments, form):
        write(piece)
    note_factor(output, time.perf_counter() - begin, blocks.count / _LIVE_RATE)


def _written(segments: Iterator[Segment], form: Format) -> Iterator[str]:
    """Each segment as it is written."""
    from genai_pipeline.ops.timed_text import srt_cues, vtt_cues

    if form == "srt":
        return srt_cues(segments)
    if form == "vtt":
        return vtt_cues(segments)
    if form == "json":
        return (json_line(segment.to_dict()) for segment in segments)
    return (f"{' '.join(segment.text.split())}\n" for segment in segments)


class _Counted:
    """Blocks, and how many samples they had."""

    def __init__(self, blocks: Iterable[FloatArray]) -> None:
        self._blocks = blocks
        self.count = 0

    def __iter__(self) -> Iterator[FloatArray]:
        for block in self._blocks:
            self.count += len(block)
            yield block

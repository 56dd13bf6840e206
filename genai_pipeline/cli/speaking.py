"""``genai-pipeline speak PACKAGE TEXT``: a text as sound, written while it is made."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from genai_pipeline.cli import run_options as groups
from genai_pipeline.cli.media_out import binary_out, check_place
from genai_pipeline.cli.option_groups import takes
from genai_pipeline.cli.packages import loaded
from genai_pipeline.cli.prompt import prompt_text
from genai_pipeline.cli.task_options import TaskRequest, note_factor
from genai_pipeline.errors import OptionError, RequestError

if TYPE_CHECKING:
    from genai_pipeline.ops.media import Audio

_MOST_WAV_BYTES: Final = (1 << 32) - 64  # of samples: a WAV header has 32 bits for them; longer ones stay streams


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
    check_place(out)
    spoken = prompt_text(package, text)
    with loaded(ctx.obj, package, asked.loading) as pipe:
        begin = time.perf_counter()
        pieces = pipe.stream_speech(spoken, **asked.options(pipe.plan.package))
        with closing(pieces), ctx.obj.waiting("speaking ..."):
            first = next(pieces, None)
            if first is None:
                raise RequestError("the package made no sound of this text", param="text")
            first_after = time.perf_counter() - begin
            with binary_out(out) as file, _sound_file(file, first, wav=not raw) as written:
                written.add(first)
                for piece in pieces:
                    written.add(piece)
    note_factor(ctx.obj, time.perf_counter() - begin, written.seconds, f"; first after {first_after:.2f} s")


class _Written:
    """The samples of a sound that are in a file."""

    def __init__(self, file: BinaryIO, first: Audio) -> None:
        self._file = file
        self._per_second = 2 * first.channels * first.rate
        self.bytes = 0

    @property
    def seconds(self) -> float:
        """How long it is by now."""
        return self.bytes / self._per_second

    def add(self, piece: Audio) -> None:
        """One more piece, out at once."""
        data = piece.pcm()
        self._file.write(data)
        self._file.flush()
        self.bytes += len(data)


@contextmanager
def _sound_file(file: BinaryIO, first: Audio, *, wav: bool) -> Iterator[_Written]:
    """Samples behind a WAV header, where asked for; it gets the length in the end, however that comes about."""
    from genai_pipeline.ops.media import wav_header

    written = _Written(file, first)
    start = file.tell() if wav and _can_be_mended(file) else None
    header = wav_header(first.rate, first.channels) if wav else b""
    file.write(header)
    try:
        yield written
    finally:
        if start is not None:
            end = file.tell()
            size = end - start - len(header)  # by the file: an interrupt may come between a piece and its count
            if size <= _MOST_WAV_BYTES:
                file.seek(start)
                file.write(wav_header(first.rate, first.channels, size))
                file.seek(end)


def _can_be_mended(file: BinaryIO) -> bool:
    """Whether what is written can be written over: in a regular file that is not only appended to."""
    if not file.seekable():
        return False
    try:
        import fcntl

        return not fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_APPEND
    except (ImportError, OSError):  # no such system call, or no file below
        return True

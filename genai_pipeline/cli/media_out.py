"""Where commands put what is no text: a file that is named, or stdout as bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from genai_pipeline.cli.output import cannot_write
from genai_pipeline.errors import OptionError, OutputError


@contextmanager
def binary_out(path: str | None) -> Iterator[BinaryIO]:
    """The file of that name, or stdout for None and '-'. Raises OptionError or OutputError."""
    if path is None or path == "-":
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise  # the reader has what it wanted
        except OSError as error:
            raise cannot_write(error) from error
        return
    try:
        file = open(path, "wb")  # noqa: SIM115 - a caller's with statement closes it
    except (OSError, ValueError) as error:
        raise OptionError(
            f"--out {path} cannot be written: {_reason(error)}", param="out", hint="name a file"
        ) from error
    with file:
        try:
            yield file
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {_reason(error)}", hint="see to free space there") from error


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

"""Where commands put what is no text: a file that is named, or stdout as bytes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from genai_pipeline.cli.output import cannot_write
from genai_pipeline.errors import OptionError, OutputError


def check_place(path: str | None) -> None:
    """Refuse a file that cannot be made, before anything is loaded; nothing is made. Raises OptionError."""
    if path is None or path == "-":
        return
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not path:
        why = "it is a folder" if path else "it has no name"
    elif not os.path.isdir(folder):
        why = f"there is no folder {folder}"
    elif not os.access(path if os.path.lexists(path) else folder, os.W_OK):
        why = "this user may not write there"
    else:
        return
    raise OptionError(f"--out {path} cannot be written: {why}", param="out", hint="name a file")


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
        file = open(path, "wb")  # noqa: SIM115 - closed below, where that may fail
    except (OSError, ValueError) as error:
        raise OptionError(
            f"--out {path} cannot be written: {_reason(error)}", param="out", hint="name a file"
        ) from error
    try:
        with file:
            yield file
    except BrokenPipeError:
        raise  # a pipe with a name, whose reader has what it wanted
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {_reason(error)}", hint="see to free space there") from error


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

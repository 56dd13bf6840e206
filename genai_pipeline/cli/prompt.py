"""The prompt of a command: an argument, stdin, or what the package declares."""

from __future__ import annotations

import sys

from genai_pipeline.cli.packages import default_prompt
from genai_pipeline.errors import RequestError


def prompt_text(package: str, prompt: str | None) -> str:
    """The prompt as given, from stdin for '-', or what the package declares. Raises RequestError without any."""
    if prompt is None:
        prompt = default_prompt(package)
        if prompt is None:
            raise RequestError(
                "no prompt was given", param="prompt", hint="write it after the package, or '-' for stdin"
            )
        return prompt
    return _from_stdin() if prompt == "-" else prompt


def _from_stdin() -> str:
    """All of stdin as text, without the line end that shells add."""
    if sys.stdin is None:
        raise RequestError("no prompt was given: stdin is closed", param="prompt", hint="write it after the package")
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise RequestError(f"the prompt on stdin is not UTF-8: {error}", param="prompt") from error
    except OSError as error:  # a folder, or a terminal that has gone
        raise RequestError(f"the prompt on stdin cannot be read: {error.strerror}", param="prompt") from error

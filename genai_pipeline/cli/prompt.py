"""The prompt of a command: an argument, stdin, or what the package declares."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from genai_pipeline.cli.packages import declared, texts_of
from genai_pipeline.errors import RequestError

if TYPE_CHECKING:
    from genai_pipeline.metadata.model import PackageSpec


def prompt_text(package: str, prompt: str | None) -> str:
    """The prompt as given, from stdin for '-', or what the package declares. Raises RequestError without any."""
    found = given_prompt(prompt) if prompt is not None else default_prompt(declared(package))
    if found is None:
        raise no_prompt()
    return found


def optional_prompt(spec: PackageSpec | None, prompt: str | None) -> str | None:
    """``prompt_text`` of a package that may do without: None where it takes no text, or does not need it."""
    if prompt is not None:
        return given_prompt(prompt)
    found = default_prompt(spec)
    if found is None and (spec is None or any(text.required for text in texts_of(spec))):
        raise no_prompt()
    return found


def given_prompt(prompt: str) -> str:
    """The prompt as it was typed, or from stdin for '-'. Raises RequestError."""
    return _from_stdin() if prompt == "-" else prompt


def default_prompt(spec: PackageSpec | None) -> str | None:
    """What a package declares for requests without a prompt; None when nothing."""
    texts = texts_of(spec)
    main = [text for text in texts if len(texts) == 1 or text.name == "prompt"]
    return main[0].default if main else None


def no_prompt(why: str = "") -> RequestError:
    """What to say where a prompt is missing."""
    hint = "write it after the package" + ("" if why else ", or '-' for stdin")
    return RequestError(f"no prompt was given{why}", param="prompt", hint=hint)


def _from_stdin() -> str:
    """All of stdin as text, without the line end that shells add."""
    if sys.stdin is None:
        raise no_prompt(": stdin is closed")
    try:
        read = sys.stdin.buffer.read()
        if not read:  # what should have written it may have failed
            raise no_prompt(": stdin is empty")
        return read.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise RequestError(f"the prompt on stdin is not UTF-8: {error}", param="prompt") from error
    except OSError as error:  # a folder, or a terminal that has gone
        raise RequestError(f"the prompt on stdin cannot be read: {error.strerror}", param="prompt") from error

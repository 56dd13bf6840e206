"""Wrong usage of the command line, which the parser finds, told like every other error: one line, and a hint."""

from __future__ import annotations

from typing import Any

import typer

from genai_pipeline.errors import OptionError
from genai_pipeline.problems import nearest

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # what the parser raises; typer has no public name for it


def usage_error(error: Any) -> OptionError:
    """The parser's error as one of ours."""
    command = error.ctx.command_path if error.ctx is not None else "genai-pipeline"
    word = error.option_name if hasattr(error, "option_name") and hasattr(error, "possibilities") else None
    text = f"no such option: {word}" if word is not None else error.format_message()
    text, _, suggested = " ".join(text.split()).partition(" Did you mean ")
    message = text[:1].lower() + text[1:].removesuffix(".").replace("Value error, ", "")
    hint = f"did you mean {suggested}" if suggested else _nearest_option(error, word)
    return OptionError(message, hint=hint or f"{command} --help tells what it takes")


def _nearest_option(error: Any, word: str | None) -> str:
    """The option of the command whose letters are nearest; dashes, which all have, are no likeness."""
    if word is None or error.ctx is None:
        return ""
    flags = [flag for parameter in error.ctx.command.params for flag in (*parameter.opts, *parameter.secondary_opts)]
    names = {flag[2:]: flag for flag in flags if flag.startswith("--")}
    hint = nearest(word.lstrip("-"), names)
    return next((hint.replace(f"'{name}'", f"'{flag}'") for name, flag in names.items() if f"'{name}'" in hint), "")

"""Slash commands about how answers come about: options, figures, the package and how it is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from genai_pipeline.cli.chat.figures import figures, table
from genai_pipeline.cli.chat.model import available_providers
from genai_pipeline.cli.chat.options import check
from genai_pipeline.cli.written import pairs
from genai_pipeline.errors import GenaiError, OptionError, RequestError
from genai_pipeline.problems import nearest

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.state import Chat


def stats(chat: Chat, argument: str) -> None:
    """Show figures."""
    refuse_argument("stats", argument)
    tokens = len(chat.conversation.session.tokens)
    chat.terminal.show(table(list(figures(chat.tally, chat.pipe.stats(), tokens, chat.pipe.context_length))))


def params(chat: Chat, argument: str) -> None:
    """Show options, or set or reset one."""
    name, equals, value = (part.strip() for part in argument.partition("="))
    if not equals:
        _show_params(chat, name)
    elif value:
        ((_, read),) = pairs("/params", [f"{name}={value}"]).items()
        chat.options.set(chat.pipe, name, read)
        _show_params(chat, name)
    else:
        chat.options.reset(chat.pipe, name)
        chat.terminal.note(f"{name} is set no more")


def model(chat: Chat, argument: str) -> None:
    """Show the package, or put another one in its place."""
    if not argument:
        chat.terminal.show(chat.model.title)
        return
    if chat.media:
        raise RequestError("files wait to go with what you say next", param="model", hint="say something first")
    chat.model.replace(str(Path(argument).expanduser()) if argument.startswith("~") else argument, chat.forks.move)
    _loaded(chat)


def provider(chat: Chat, argument: str) -> None:
    """Show the providers, or load the package on others."""
    if not argument:
        lines = [*map(str, chat.pipe.placement), f"there are: {', '.join(available_providers(chat.model.loading))}"]
        chat.terminal.show("\n".join(lines))
        return
    chat.model.reload({"providers": re.sub(r"\s*,\s*", ",", argument).split()}, chat.forks.move)
    _loaded(chat)


def profile(chat: Chat, argument: str) -> None:
    """Begin a trace, or end the one that is being written."""
    before = chat.model.loading.get("profile")
    if not argument and before is None:
        raise RequestError("/profile takes a file; no trace is being written", param="profile")
    path = str(Path(argument).expanduser()) if argument else None
    if path is not None and path == before:
        raise OptionError(f"the trace {path} is being written already", param="profile", hint="/profile ends it")
    chat.model.reload({"profile": path}, chat.forks.move)
    said = f"the trace {before} is complete" if path is None else f"a trace is written to {path}; /profile ends it"
    chat.terminal.note(said)


def refuse_argument(name: str, argument: str) -> None:
    """Commands that take nothing say so. Raises RequestError."""
    if argument:
        raise RequestError(f"/{name} takes nothing behind it, not '{argument}'", param=name)


def _show_params(chat: Chat, name: str) -> None:
    rows = [("OPTION", "VALUE", "SOURCE"), *chat.options.rows(chat.pipe)]
    if name:
        rows = [row for row in rows if row[0] == name]
    if not rows:
        shown = [row[0] for row in chat.options.rows(chat.pipe)]
        hint = nearest(name, shown) or f"/params {name}=VALUE sets an option, /params shows them"
        raise OptionError(f"the option '{name}' is not set", param=name, hint=hint)
    chat.terminal.show(table(rows))


def _loaded(chat: Chat) -> None:
    """Say what is there now; options that it will not take are told at once, not at the next turn."""
    chat.terminal.note(f"this is {chat.model.title}; what was said so far goes on with it")
    try:
        messages = chat.conversation.session.messages
        if messages:
            chat.pipe.tokenize(messages=messages)
    except GenaiError as error:  # pictures for a package that takes none, a system message for a template without
        chat.terminal.failure(error)
        chat.terminal.note("note: what was said so far does not suit it; /rewind, or /model with the one before")
    try:
        check(chat.pipe, chat.options.request)
    except RequestError as error:
        chat.terminal.failure(error)
        if error.param is not None:
            chat.terminal.note(f"note: /params {error.param}= resets it")

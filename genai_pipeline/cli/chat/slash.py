"""Slash commands: what there is, what each takes, and how one is found by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from genai_pipeline.cli.chat import settings, talking
from genai_pipeline.cli.chat.figures import table
from genai_pipeline.errors import RequestError
from genai_pipeline.problems import nearest

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.state import Chat

Takes = Literal["nothing", "text", "file", "action and file", "fork", "option", "package", "provider", "command"]


@dataclass(frozen=True, slots=True)
class Slash:
    """One command; ``does`` gets what stands behind its name, and raises GenaiError for what cannot be."""

    name: str
    argument: str  # as the help shows it
    says: str
    takes: Takes
    does: Callable[[Chat, str], None]


def _help(chat: Chat, argument: str) -> None:
    if argument:
        found = find(argument.removeprefix("/"))
        chat.terminal.show(f"/{found.name} {found.argument}".rstrip() + f"\n  {found.says}")
        return
    chat.terminal.show(table([(f"/{slash.name} {slash.argument}".rstrip(), slash.says) for slash in SLASHES.values()]))


def _exit(chat: Chat, argument: str) -> None:
    settings.refuse_argument("exit", argument)
    chat.ended = True


def _by_name(slashes: Iterable[Slash]) -> Mapping[str, Slash]:
    return {slash.name: slash for slash in slashes}


SLASHES: Final = _by_name(
    (
        Slash("system", "[TEXT]", "Show or set the system message; '-' takes it out.", "text", talking.system),
        Slash(
            "image",
            "[FILE]",
            "Show the model a picture with what is said next; list those that wait; '-' takes them out.",
            "file",
            talking.image,
        ),
        Slash(
            "audio",
            "[FILE]",
            "Let the model hear a sound with what is said next; list those that wait; '-' takes them out.",
            "file",
            talking.audio,
        ),
        Slash("tool", "RESULT", "Give the result of the tool call that was asked for.", "text", talking.tool),
        Slash(
            "session",
            "save|load FILE",
            "Keep this conversation, or go on with one.",
            "action and file",
            talking.session,
        ),
        Slash(
            "fork", "[NAME]", "Go on from here under another name, or in that fork; list them.", "fork", talking.fork
        ),
        Slash("rewind", "[TURNS]", "Take back what was said last (1 turn).", "nothing", talking.rewind),
        Slash("stats", "", "Tokens, speeds and memory.", "nothing", settings.stats),
        Slash(
            "params",
            "[NAME[=VALUE]]",
            "Show options and their source; set one; NAME= resets it.",
            "option",
            settings.params,
        ),
        Slash("model", "[PACKAGE]", "Show the package, or talk with another one.", "package", settings.model),
        Slash(
            "provider",
            "[NAME ...]",
            "Show the execution providers, or load the package on these.",
            "provider",
            settings.provider,
        ),
        Slash("profile", "[FILE]", "Write a trace for Perfetto; without a file: end it.", "file", settings.profile),
        Slash("help", "[COMMAND]", "Show this.", "command", _help),
        Slash("exit", "", "End the chat, as Ctrl-D does.", "nothing", _exit),
    )
)
_OTHER_NAMES: Final = {"quit": "exit", "bye": "exit", "?": "help"}


def find(name: str) -> Slash:
    """The command of that name. Raises RequestError with the nearest one."""
    found = SLASHES.get(_OTHER_NAMES.get(name, name))
    if found is None:
        known = [f"/{one}" for one in SLASHES]
        hint = nearest(f"/{name}", known) or "/help shows the commands; // says a text that begins with /"
        raise RequestError(f"there is no command /{name}", param="command", hint=hint)
    return found


def names() -> Sequence[str]:
    """Every command, in the order of the help."""
    return tuple(SLASHES)

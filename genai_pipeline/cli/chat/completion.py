"""What may complete a line of the chat: names of slash commands, and what stands behind them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from genai_pipeline.cli.chat.model import available_providers
from genai_pipeline.cli.chat.options import names as option_names
from genai_pipeline.cli.chat.slash import SLASHES, Takes

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.state import Chat

_ACTIONS: Final = ("save", "load")
_MAX_FILES: Final = 200


@dataclass(frozen=True, slots=True)
class Offer:
    """One completion: ``text`` stands in for the last ``replaces`` characters; ``shown`` in a menu as ``says``."""

    text: str
    replaces: int
    shown: str
    says: str = ""


def offers(chat: Chat, line: str) -> Sequence[Offer]:
    """What may complete a line up to the cursor; nothing where it is no command."""
    if not line.startswith("/") or "\n" in line:
        return ()
    name, space, argument = line[1:].partition(" ")
    if not space:
        return tuple(
            Offer(f"/{slash.name}", len(line), f"/{slash.name} {slash.argument}".rstrip(), slash.says)
            for slash in SLASHES.values()
            if slash.name.startswith(name)
        )
    slash = SLASHES.get(name)
    return () if slash is None else tuple(_ARGUMENTS[slash.takes](chat, argument))


def _words(words: Iterable[str], begun: str) -> Iterator[Offer]:
    return (Offer(word, len(begun), word) for word in words if word.startswith(begun))


def _nothing(chat: Chat, argument: str) -> Iterator[Offer]:
    return iter(())


def _files(chat: Chat, argument: str) -> Iterator[Offer]:
    """Files and folders that a path may mean; folders end in a slash."""
    folder, begun = os.path.split(argument)
    try:
        found = sorted(Path(folder or ".").expanduser().iterdir())[:_MAX_FILES]
    except OSError:  # no folder, or not to be read: nothing to offer
        return
    for path in found:
        if path.name.startswith(begun) and (begun or not path.name.startswith(".")):
            name = f"{path.name}/" if path.is_dir() else path.name
            yield Offer(name, len(begun), name)


def _action_and_file(chat: Chat, argument: str) -> Iterator[Offer]:
    action, space, file = argument.partition(" ")
    return _files(chat, file) if space else _words(_ACTIONS, action)


def _forks(chat: Chat, argument: str) -> Iterator[Offer]:
    return _words(chat.forks.all, argument)


def _options(chat: Chat, argument: str) -> Iterator[Offer]:
    return iter(()) if "=" in argument else _words((f"{name}=" for name in option_names()), argument)


def _packages(chat: Chat, argument: str) -> Iterator[Offer]:
    """Known names, and folders."""
    from genai_pipeline.importers.recipes import known_names

    yield from _words(sorted(known_names()), argument)
    yield from _files(chat, argument)


def _providers(chat: Chat, argument: str) -> Iterator[Offer]:
    return _words(available_providers(chat.model.loading), argument.replace(",", " ").rpartition(" ")[2])


def _commands(chat: Chat, argument: str) -> Iterator[Offer]:
    return _words(SLASHES, argument)


_ARGUMENTS: Final[Mapping[Takes, Callable[[Chat, str], Iterator[Offer]]]] = {
    "nothing": _nothing,
    "text": _nothing,
    "file": _files,
    "action and file": _action_and_file,
    "fork": _forks,
    "option": _options,
    "package": _packages,
    "provider": _providers,
    "command": _commands,
}

"""Slash commands about what is said: the system message, media, tool results, sessions in files, forks, rewinding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from genai_pipeline.cli.chat.figures import table
from genai_pipeline.cli.chat.turns import tool_turn
from genai_pipeline.cli.media_in import Attachment, content, naming
from genai_pipeline.errors import OptionError, RequestError
from genai_pipeline.problems import nearest, one_of

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.state import Chat


def system(chat: Chat, argument: str) -> None:
    """Show or set the system message."""
    if not argument:
        text = chat.conversation.system
        chat.terminal.show("there is no system message" if text is None else text)
        return
    text = None if argument == "-" else argument
    if text is not None:  # a template that takes none says so now
        opening = [{"role": "system", "content": text}, {"role": "user", "content": "x"}]
        chat.pipe.tokenize(messages=opening)
    chat.conversation.set_system(text)
    chat.terminal.note("the system message is taken out" if text is None else "the system message is set")


def image(chat: Chat, argument: str) -> None:
    """Attach a picture, show those that wait, or take them out."""
    _attach(chat, "image", argument)


def audio(chat: Chat, argument: str) -> None:
    """Attach a sound, show those that wait, or take them out."""
    _attach(chat, "audio", argument)


def tool(chat: Chat, argument: str) -> None:
    """Answer the oldest tool call that has no result yet."""
    if not argument:
        raise RequestError("/tool takes the result as text", param="tool", hint='for example: /tool {"degrees": 7}')
    tool_turn(chat, argument)


def session(chat: Chat, argument: str) -> None:
    """Save the conversation, or go on with a saved one."""
    action, _, file = argument.partition(" ")
    path = str(Path(file.strip()).expanduser()) if file.strip() else ""
    if action not in _SESSION:
        hint = nearest(action, _SESSION) if action else ""
        raise RequestError("/session takes save FILE or load FILE", param="session", hint=hint)
    if not path:
        raise RequestError(f"/session {action} takes a file", param="session", hint="name one behind it")
    _SESSION[action](chat, path)


def fork(chat: Chat, argument: str) -> None:
    """List the forks, go to one, or begin one."""
    if not argument:
        rows = [
            ("*" if name == chat.forks.name else " ", name, f"{held.turns} turn{'s' * (held.turns != 1)}")
            for name, held in chat.forks.all.items()
        ]
        chat.terminal.show(table(rows))
        return
    before = chat.forks.name
    began = chat.forks.switch(argument)
    chat.terminal.note(f"'{argument}' goes on from '{before}'" if began else f"this is '{argument}'")


def rewind(chat: Chat, argument: str) -> None:
    """Take back the last turns."""
    if argument and not (argument.isascii() and argument.isdigit() and len(argument) < 10):
        raise OptionError(f"/rewind takes a number of turns, not '{argument}'", param="turns")
    turns = int(argument or 1)
    chat.conversation.rewind(turns)
    left = chat.conversation.turns
    chat.terminal.note(f"took back {turns} turn{'s' * (turns != 1)}; {left} {'is' if left == 1 else 'are'} left")


def _save(chat: Chat, path: str) -> None:
    chat.conversation.session.save(path)
    chat.terminal.note(f"saved to {path}")


def _load(chat: Chat, path: str) -> None:
    chat.forks.load(chat.pipe.session(path))
    turns = chat.conversation.turns
    chat.terminal.note(f"going on with {path}: {turns} turn{'s' * (turns != 1)}")


_SESSION = {"save": _save, "load": _load}


def _attach(chat: Chat, modality: str, argument: str) -> None:
    """Keep a file for what is said next, show what is kept, or let it go. Raises RequestError or MediaError."""
    if modality not in chat.model.takes:
        message = f"{chat.model.name} takes no {modality}: none of its inputs is one"
        raise RequestError(message, param=modality, hint=f"it takes: {one_of(chat.model.takes)}")
    kept = [one for one in chat.media if one.modality == modality]
    if not argument:
        chat.terminal.show("\n".join(one.path for one in kept) or f"no {modality} waits; /{modality} FILE adds one")
    elif argument == "-":
        chat.media[:] = [one for one in chat.media if one.modality != modality]
        chat.terminal.note(f"{len(kept)} taken out")
    else:
        added = Attachment.read(modality, str(Path(argument).expanduser()))
        _try(chat, [*chat.media, added])
        chat.media.append(added)
        chat.terminal.note(f"{added.path} goes with what you say next")


def _try(chat: Chat, media: list[Attachment]) -> None:
    """Let the package read files, and its template place them, so that what is refused is refused now."""
    places = {f"messages[0].content[{index}]": one.path for index, one in enumerate(media)}
    with naming(places):
        chat.pipe.tokenize(messages=[{"role": "user", "content": content("x", media)}])

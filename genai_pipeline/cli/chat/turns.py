"""The turns of a chat: something is said, or a tool's result given, and the answer is shown and counted."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from genai_pipeline.cli.chat.reply import ask
from genai_pipeline.cli.media_in import content, naming
from genai_pipeline.engine.session import Mark
from genai_pipeline.errors import RequestError

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.state import Chat
    from genai_pipeline.engine.session import Message


def say(chat: Chat, text: str) -> None:
    """Say something, with the media that wait for it. Raises the error that ended the turn, which then never was."""
    held = chat.conversation
    before = held.session.checkpoint()
    place = f"messages[{len(before.messages)}].content"
    with naming({f"{place}[{index}]": one.path for index, one in enumerate(chat.media)}):
        _ask(chat, content(text, chat.media), {})
    held.keep(before)
    chat.media.clear()


def tool_turn(chat: Chat, result: str) -> None:
    """Give the result of the oldest open tool call; when it was the last one, the model goes on.

    Raises RequestError where no call is open, or the error that ended the turn.
    """
    session = chat.conversation.session
    open_calls = _open_calls(session.messages)
    if not open_calls:
        raise RequestError("there is no tool call that waits for a result", param="tool")
    call, *others = open_calls
    message = {"role": "tool", "name": call["function"]["name"], "tool_call_id": call["id"]}
    if others:
        session.rewind(Mark((*session.messages, {"content": result, **message}), session.tokens))
        chat.terminal.note(f"the call of {others[0]['function']['name']} waits for its result, too")
        return
    _ask(chat, result, message)


def _ask(chat: Chat, said: Any, message: Mapping[str, str]) -> None:
    session = chat.conversation.session
    before = session.checkpoint()
    reply = ask(chat.terminal, session, said, message, chat.options.request)
    chat.tally.add(reply)
    chat.presses = reply.presses
    if reply.presses:
        _stopped(chat, before)
    for note in reply.notes:
        chat.terminal.note(f"note: {note}")
    if reply.cut:
        chat.terminal.note("note: the answer was cut at the token limit")


def _stopped(chat: Chat, before: Mark) -> None:
    """Keep what was said before Ctrl-C; where that is nothing, the turn never was."""
    session = chat.conversation.session
    last = session.messages[-1] if session.messages != before.messages else {}
    if last.get("content") or last.get("tool_calls"):
        chat.terminal.note("stopped: what was said so far is kept; /rewind takes it back, Ctrl-C again leaves")
        return
    session.rewind(before)
    chat.terminal.note("stopped before anything was said; Ctrl-C again leaves")


def _open_calls(messages: tuple[Message, ...]) -> list[Mapping[str, Any]]:
    """Tool calls of the last answer that have no result yet, oldest first."""
    results = list(takewhile(lambda message: message["role"] == "tool", reversed(messages)))
    answers = messages[: len(messages) - len(results)]
    calls = answers[-1].get("tool_calls") if answers else None
    return list(calls or ())[len(results) :]

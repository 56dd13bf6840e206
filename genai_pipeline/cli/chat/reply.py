"""One answer of the model, shown as it comes; Ctrl-C ends it early, and what was said by then is the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from genai_pipeline.cli.chat.interrupts import Stopper
from genai_pipeline.parsing.parts import join_calls

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.terminal import Terminal
    from genai_pipeline.engine.session import Session
    from genai_pipeline.types import Event, Timings, ToolCallDelta, Usage


@dataclass(slots=True)
class Reply:
    """What came of asking."""

    presses: int = 0  # how often it was told to stop
    usage: Usage | None = None
    timings: Timings | None = None
    cut: bool = False  # at a limit of tokens
    notes: tuple[str, ...] = ()
    calls: list[ToolCallDelta] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """One more event. Raises the error it carries."""
        if event.error is not None:
            raise event.error
        self.calls += event.tool_calls
        if event.finish_reason is not None:
            self.usage, self.timings, self.notes = event.usage, event.timings, event.notes
            self.cut = event.finish_reason == "length"


def ask(
    terminal: Terminal, session: Session, said: Any, message: Mapping[str, str], options: Mapping[str, Any]
) -> Reply:
    """Say something and show the answer; ``message`` has further fields of what is said.

    Raises the error that ended the turn, which then never was.
    """
    reply, stopper = Reply(), Stopper()

    async def follow(came: Callable[[], None]) -> None:
        stopper.watch()
        async with aclosing(await session.aopen(said, **message, **options)) as events:
            async for event in events:
                came()
                _show(terminal, event)
                reply.add(event)

    try:
        with terminal.waiting("reading the prompt ...") as came, terminal.interruptible(stopper.press):
            asyncio.run(follow(came))
    except asyncio.CancelledError:
        terminal.break_off()
    except BaseException:
        terminal.break_off()
        raise
    else:
        terminal.end_answer(join_calls(reply.calls))
    reply.presses = stopper.presses
    return reply


def _show(terminal: Terminal, event: Event) -> None:
    if event.reasoning:
        terminal.reasoning(event.reasoning)
    if event.text:
        terminal.answer(event.text)

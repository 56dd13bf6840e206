"""What a format of tool calls is: texts that begin a call, a reader of what follows, and grammar rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from genai_pipeline.parsing.chars import Chars, MalformedError, Read
from genai_pipeline.preprocess.tools import ToolUse
from genai_pipeline.types import ToolCallDelta


class CallSink:
    """Takes the calls that a reader finds, in pieces; ``whole`` counts those that are complete."""

    def __init__(self, tools: ToolUse, new_id: Callable[[], str]) -> None:
        self._schemas = {tool.name: tool.parameters for tool in tools.callable}
        self._parallel = tools.parallel
        self._new_id = new_id
        self._index = -1
        self._open = False
        self.deltas: list[ToolCallDelta] = []
        self.whole = 0

    @property
    def over(self) -> bool:
        """Whether the one call of a request without parallel calls is whole."""
        return self.whole > 0 and not self._parallel

    def schema(self, name: str) -> Mapping[str, Any]:
        """The schema of a tool's arguments. Raises MalformedError for a name that may not be called."""
        if name not in self._schemas or self.over:
            raise MalformedError
        return self._schemas[name]

    def begin(self, name: str) -> None:
        """A call of a tool begins, and its arguments are next. Raises MalformedError for one that may not be called."""
        self.schema(name)
        self._index += 1
        self._open = True
        self.deltas.append(ToolCallDelta(self._index, self._new_id(), name))

    def arguments(self, text: str) -> None:
        """A piece of the JSON text of the arguments."""
        if text:
            self.deltas.append(ToolCallDelta(self._index, arguments=text))

    def end(self) -> None:
        """The call is whole."""
        self._open = False
        self.whole += 1

    def withdraw(self) -> None:
        """Take back a call that did not become whole, if one has begun."""
        if self._open:
            self._open = False
            self.deltas.append(ToolCallDelta(self._index, withdrawn=True))


Reader = Callable[[str, Chars, CallSink], Read[None]]
"""Reads calls behind the text that opened them (empty: none) up to the end of the last, and tells the sink.

Raises MalformedError; calls that ended until then stand. What it looked at last, but did not take, is not its own.
"""

Rules = Callable[[ToolUse, Mapping[str, int]], str]
"""Lark text that defines ``calls``, and ``text_or_calls`` where text may stand beside calls (see ``lark``).

Its second argument: ids of control tokens by text.
"""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One format of tool calls."""

    name: str
    opens: tuple[str, ...]  # texts that begin a call wherever they stand
    closes: tuple[str, ...]  # texts that may follow a call and belong to it
    read: Reader
    rules: Rules
    bare: str = ""  # characters that begin a call where no text stands before it
    short_ids: bool = False  # ids of nine letters and digits, which is all that some chat templates take

    @property
    def tags(self) -> tuple[str, ...]:
        """Texts that a parser must see even where they are control tokens."""
        return (*self.opens, *self.closes)

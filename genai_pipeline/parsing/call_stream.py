"""Tool calls found in a stream of text: everything else is passed on, in order, as soon as it can be told apart.

White space beside a call belongs to the call, but that texts on both sides of calls stay apart: they keep the white
space before the calls, or else the one after them. A call that breaks off or does not follow its format comes out as
text, whole; pieces of it that are out already are withdrawn. Only the calls that a request may make count as such.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from genai_pipeline.parsing.call_format import CallFormat, CallSink
from genai_pipeline.parsing.chars import WHITE, Chars, MalformedError
from genai_pipeline.parsing.parts import merged
from genai_pipeline.parsing.tags import begins_tag, find_tag, tag_start
from genai_pipeline.preprocess.tools import ToolUse
from genai_pipeline.types import ToolCallDelta

Pieces = tuple[str, tuple[ToolCallDelta, ...]]


class CallStream:
    """Splits text into text and tool calls; one per answer. The outcome does not depend on how the text is cut."""

    def __init__(self, format: CallFormat, tools: ToolUse, new_id: Callable[[], str]) -> None:
        self._format = format
        self._sink = CallSink(tools, new_id)
        self._reader: Generator[None, str, None] | None = None
        self._chars = Chars()
        self._whole_before = 0  # calls that were whole when the reader started
        self._raw: list[str] = []  # what the reader has read, of a call that is not whole
        self._held = ""  # text that is not told apart yet
        self._clear = True  # whether only white space has come since the beginning, or since a call
        self._after_call = False  # whether only white space has come since a call
        self._close_due = False  # whether a closing text may still come
        self._white = ""  # before the call that is being read
        self._lead = ""  # white space between the last text and a call after it
        self._gap = ""  # white space since then, outside of calls
        self._any_text = False
        self._text: list[str] = []

    @property
    def num_calls(self) -> int:
        """Whole calls so far."""
        return self._sink.whole

    @property
    def over(self) -> bool:
        """Whether the one call of a request without parallel calls is whole."""
        return self._sink.over

    def push(self, text: str) -> Pieces:
        """Text and pieces of calls that are known by one more piece of text."""
        self._held += text
        while self._held and (self._read() if self._reader is not None else self._scan()):
            pass
        return self._out()

    def finish(self) -> Pieces:
        """What was held back, at the end of the text."""
        if self._reader is not None:
            self._step("")
        self._emit(self._held)
        self._held = ""
        return self._out()

    def _emit(self, text: str) -> None:
        """Text of the answer, not empty unless it is the last."""
        if not text:
            return
        if self._any_text:
            self._text.append(self._lead or self._gap)
        self._text.append(text)
        self._any_text = True
        self._lead = self._gap = ""

    def _out(self) -> Pieces:
        text, deltas = "".join(self._text), merged(self._sink.deltas)
        self._text.clear()
        self._sink.deltas.clear()
        return text, deltas

    def _read(self) -> bool:
        """Give the reader what is there; true when it is done."""
        text = self._held
        for index, char in enumerate(text):
            self._raw.append(char)
            if not self._step(char):
                left = self._chars.ahead or ""
                self._held = left + text[index + 1 :]
                return True
        self._held = ""
        return False

    def _step(self, char: str) -> bool:
        """Give the reader one character, or the end of the text; false when it is done."""
        assert self._reader is not None
        whole = self._sink.whole
        going_on, well_formed = True, False
        try:
            self._reader.send(char)
        except StopIteration:
            going_on, well_formed = False, self._sink.whole > self._whole_before
        except MalformedError:
            going_on = False
        if self._sink.whole != whole:
            self._raw = [self._chars.ahead or ""]  # what came before belongs to whole calls
            self._lead = self._lead or self._white
        if not going_on:
            self._leave(well_formed=well_formed)
        return going_on

    def _leave(self, *, well_formed: bool) -> None:
        raw = "".join(self._raw)
        raw = raw[: len(raw) - len(self._chars.ahead or "")]
        self._reader = None
        self._raw = []
        self._clear = self._after_call = self._close_due = well_formed
        if well_formed:
            self._gap += raw if raw.isspace() else ""
        else:
            self._emit(raw)
            self._sink.withdraw()

    def _enter(self, lead: str, opened: str, rest: str) -> bool:
        """A call may begin; ``lead``: white space before it."""
        self._raw = [lead, opened]
        self._white = lead
        self._held = rest
        self._chars = Chars()
        self._whole_before = self._sink.whole
        self._reader = self._format.read(opened, self._chars, self._sink)
        next(self._reader)
        return True

    def _scan(self) -> bool:
        """Tell apart what is held, outside of calls; true when there may be more to tell."""
        start = self._held.lstrip(WHITE)
        if self._after_call:
            self._gap += self._held[: len(self._held) - len(start)]
            self._held = start
        if not start:
            return False
        if self._close_due:
            close = next((text for text in self._format.closes if start.startswith(text)), None)
            if close is not None:
                self._close_due = False
                self._held = start[len(close) :]
                return True
            if begins_tag(start, self._format.closes):
                return False
        if self._sink.over:
            return self._pass_on(len(self._held))
        if self._clear and start[0] in self._format.bare:
            return self._enter(self._held[: len(self._held) - len(start)], "", start)
        return self._find_tag()

    def _find_tag(self) -> bool:
        text = self._held
        found = find_tag(text, self._format.opens)
        if found is None:
            return self._pass_on(tag_start(text, self._format.opens))
        position, tag = found
        self._pass_on(position)
        return self._enter(self._held[: position - len(text)], tag, text[position + len(tag) :])

    def _pass_on(self, end: int) -> bool:
        """Pass on text up to an index, but for white space before that, which may belong to a call."""
        ready = self._held[:end].rstrip(WHITE)
        if ready:
            self._emit(ready)
            self._held = self._held[len(ready) :]
            self._clear = self._after_call = self._close_due = False
        return False

"""Text deltas of a growing token sequence, whose concatenation is exactly the decoded whole.

Decoders are not free of context: the first token may lose its space, and characters are spread over several byte
tokens. So a new token is decoded together with a few before it, and what was there already is taken off. Text is held
back while it may still change: an unfinished character (decoded as U+FFFD), and a run of byte tokens, which a
byte-fallback decoder judges as one: one wrong byte makes every byte of the run U+FFFD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from genai_pipeline.preprocess.byte_level import ByteLevelDetokenizer

if TYPE_CHECKING:
    from genai_pipeline.preprocess.tokenizer import Tokenizer

_UNFINISHED = "\ufffd"
_LONG = 16  # tokens of a window from which on it is shortened
_CONTEXT = 4  # tokens a shortened window keeps at least: no character has more bytes

_Run = tuple["_Run | None", int]  # a linked list, newest byte token first


@dataclass(frozen=True, slots=True)
class _State:
    window: tuple[int, ...] = ()  # the last tokens, decoded together
    released: int = 0  # characters of the window's text that are out
    run: _Run | None = None  # byte tokens after the window, not judged yet


class Detokenizer:
    """Turns tokens into text as they come; one per sequence, not thread-safe."""

    def __init__(self, tokenizer: Tokenizer, visible: frozenset[int] = frozenset()) -> None:
        self._tokenizer = tokenizer
        self._visible = visible
        self._bytes = tokenizer.byte_tokens
        self._state = _State()

    def push(self, token: int) -> str:
        """The text that ``token`` completes: often a word, sometimes nothing."""
        if self._tokenizer.is_skipped(token):
            return self.flush() + (self._tokenizer.id_to_token(token) or "") if token in self._visible else ""
        state = self._state
        if token in self._bytes:
            self._state = _State(state.window, state.released, (state.run, token))
            return ""
        return self._release((*state.window, *_unrolled(state.run), token))

    def flush(self) -> str:
        """The text held back, at the end of the sequence."""
        state = self._state
        window = (*state.window, *_unrolled(state.run))
        text = self._tokenizer.decode(window)
        self._state = _State(window, len(text))
        return text[state.released :]

    def snapshot(self) -> object:
        """The state now, to come back to with ``restore``; costs nothing."""
        return self._state

    def restore(self, snapshot: object) -> None:
        """Forget every token pushed since ``snapshot``."""
        assert isinstance(snapshot, _State)
        self._state = snapshot

    def _release(self, window: tuple[int, ...]) -> str:
        """Take the window over and give the new text in it that can change no more."""
        text = self._tokenizer.decode(window)
        ready = len(text) - text.endswith(_UNFINISHED)
        released = self._state.released
        self._state = self._shortened(window, max(released, ready), text)
        return text[released:ready]

    def _shortened(self, window: tuple[int, ...], released: int, text: str) -> _State:
        """The state with a long window cut to its last tokens, where these decode to the same end of the text."""
        if len(window) >= _LONG:
            for keep in range(_CONTEXT, len(window)):
                first = len(window) - keep
                if window[first - 1] in self._bytes and window[first] in self._bytes:
                    continue  # would cut a run of byte tokens
                rest = self._tokenizer.decode(window[first:])
                gone = len(text) - len(rest)
                if rest and gone <= released and text.endswith(rest):
                    return _State(window[first:], released - gone)
        return _State(window, released)


def _unrolled(run: _Run | None) -> list[int]:
    """The byte tokens of a run, oldest first."""
    tokens = []
    while run is not None:
        run, token = run
        tokens.append(token)
    return tokens[::-1]


def make_detokenizer(tokenizer: Tokenizer, visible: frozenset[int] = frozenset()) -> Detokenizer | ByteLevelDetokenizer:
    """The quickest detokeniser that gives exactly what the tokenizer decodes.

    ``visible``: control tokens whose text is given too, for a parser that looks for them.
    """
    table = tokenizer.byte_table
    return Detokenizer(tokenizer, visible) if table is None else ByteLevelDetokenizer(table.showing(visible))

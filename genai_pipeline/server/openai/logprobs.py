"""Log probabilities in the shapes of the two interfaces: tokens as texts, and as bytes where a text cannot tell.

A token that is no whole number of characters has its other bytes written as ``\\xf0``. In text completions, which have
no bytes beside texts, such a token begins with ``bytes:``. Minus infinity is -9999.0: JSON has none.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from typing import Any, Final

from genai_pipeline.types import TokenLogprobs

LEAST: Final = -9999.0
BytesOf = Callable[[int], bytes]

_decoder = codecs.getincrementaldecoder("utf-8")


def finite(logprob: float) -> float:
    """A log probability as JSON has it."""
    return max(logprob, LEAST)


def chat_logprobs(scored: Iterable[TokenLogprobs], bytes_of: BytesOf) -> dict[str, Any]:
    """The log probabilities of tokens as a choice of a chat completion has them."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        data = bytes_of(token)
        text = data.decode("utf-8", errors="backslashreplace")
        return {"token": text, "logprob": finite(logprob), "bytes": list(data)}

    content = [
        {
            **entry(one.token, one.logprob),
            "top_logprobs": [entry(other.token, other.logprob) for other in one.top],
        }
        for one in scored
    ]
    return {"content": content, "refusal": None}


class TextLogprobs:
    """The log probabilities of one choice of a text completion, whose texts have places in one text."""

    def __init__(self, bytes_of: BytesOf) -> None:
        self._bytes_of = bytes_of
        self._decoder = _decoder("replace")
        self._offset = 0
        self._lists = _lists()

    def prompt(self, tokens: Iterable[int], scores: Iterable[TokenLogprobs], text: str) -> None:
        """The tokens of a prompt with the scores of all but the first, and the text that it is shown as.

        A token in front that the text does not show, such as a begin token, takes no room in it.
        """
        tokens = tuple(tokens)
        if not tokens:
            return
        first = self._bytes_of(tokens[0]).decode("utf-8", errors="replace")
        self._add(tokens[0], None, None, shown=text.startswith(first))
        for token, one in zip(tokens[1:], scores, strict=True):
            self._add(token, one.logprob, self._top(one))

    def added(self, answer: Iterable[TokenLogprobs]) -> dict[str, Any]:
        """Tokens of the answer, behind what was added before and not given yet."""
        for one in answer:
            self._add(one.token, one.logprob, self._top(one))
        taken, self._lists = self._lists, _lists()
        return taken

    def _add(self, token: int, logprob: float | None, top: dict[str, float] | None, *, shown: bool = True) -> None:
        self._lists["tokens"].append(self._text(token))
        self._lists["token_logprobs"].append(None if logprob is None else finite(logprob))
        self._lists["top_logprobs"].append(top)
        self._lists["text_offset"].append(self._offset)
        if shown:
            self._offset += len(self._decoder.decode(self._bytes_of(token)))

    def _top(self, scored: TokenLogprobs) -> dict[str, float]:
        """The likeliest tokens and the chosen one; of tokens with one text the likelier one counts."""
        found: dict[str, float] = {}
        for other in scored.top:
            found.setdefault(self._text(other.token), finite(other.logprob))
        found.setdefault(self._text(scored.token), finite(scored.logprob))
        return found

    def _text(self, token: int) -> str:
        data = self._bytes_of(token)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _lists() -> dict[str, Any]:
    return {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}

"""Encodes prompts in which text is only text: control tokens come from control pieces, never from characters.

The tokenizer behind it takes the text of a control token like any other text. To put a control token into a prompt all
the same, each one has a *twin* there: an added token whose text was made up when the tokenizer was loaded, so that no
request can contain it, with the same rules about the white space around it. The whole prompt is encoded in one call;
rules about neighbours and about the start of the text therefore see what a parsing tokenizer would see.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genai_pipeline.errors import RequestError

_MARK = "\U0010fffd"
_BREAK = "/."


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt: one control token, or text in which control tokens have no meaning."""

    text: str
    control: bool = False


@dataclass(frozen=True, slots=True)
class EncodedText:
    """The tokens of a text: ids, segments they belong to, half-open ranges of characters they cover."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]


def encode_ids(built: Any, text: str) -> list[int]:
    """Ids of a text under a ``tokenizers.Tokenizer``, nothing added. Raises RequestError like ``encoded``."""
    ids: list[int] = encoded(built, text).ids
    return ids


def encoded(built: Any, text: str) -> Any:
    """A text's encoding under a ``tokenizers.Tokenizer``, nothing added; other threads run meanwhile.

    The library lets them do so for batches only, and a text of a megabyte takes a second. Raises RequestError for text
    that the vocabulary has no token for, not even one for what is unknown.
    """
    given = [encodable(text)]
    try:
        (encoding,) = built.encode_batch(given, add_special_tokens=False)
    except Exception as error:  # the library has no kind of its own
        hint = "the package's tokenizer.json needs a token for what is unknown"
        raise RequestError(f"the tokenizer cannot encode this text: {error}", param="prompt", hint=hint) from error
    return encoding


class PlainEncoder:
    """One tokenizer that never parses control tokens, with the twins that stand for them."""

    def __init__(
        self, built: Any, control: Mapping[str, Any], ids: Mapping[str, int], highest_id: int, new: Callable[..., Any]
    ) -> None:
        """Take over a ``tokenizers.Tokenizer`` of its own, whose largest id is ``highest_id``.

        ``control``: the control tokens' ``AddedToken`` by text, ``ids``: their ids, ``new``: makes an ``AddedToken``.
        Raises ValueError when the vocabulary has gaps that the twins' ids would fall in.
        """
        self._built = built
        self._ids = ids
        nonce = _MARK + secrets.token_hex(8)
        self._twins = {text: f"{nonce}{index}." for index, text in enumerate(control)}
        self._break = nonce + _BREAK
        twins = [
            new(self._twins[text], lstrip=like.lstrip, rstrip=like.rstrip, normalized=False)
            for text, like in control.items()
        ]
        built.add_tokens([new(self._break, normalized=False), *twins])
        built.encode_special_tokens = True
        # what the id of a twin stands for; -1: nothing
        self._stands_for = {built.token_to_id(twin): ids[text] for text, twin in self._twins.items()}
        self._stands_for[built.token_to_id(self._break)] = -1
        if min(self._stands_for) <= highest_id:
            raise ValueError("its token ids have gaps")
        # What characters outside the vocabulary become may well be a control token (<unk>): no sign of forgery.
        self._forgeable = frozenset(ids.values()).difference(_unknown(built))

    def encode(self, pieces: Iterable[Piece]) -> tuple[int, ...]:
        """Ids of a prompt; raises RequestError for text that cannot be kept from becoming a control token."""
        pieces = tuple(pieces)
        ids = self._encode(pieces)
        forged = self._forged(ids, pieces)
        if forged:
            # Some vocabularies reach a control token from its characters; cut inside each such text.
            ids = self._encode(self._cut(pieces, forged))
            if self._forged(ids, pieces):
                raise RequestError("the text holds a control token that this tokenizer cannot encode as text")
        return tuple(mapped for token in ids if (mapped := self._stands_for.get(token, token)) >= 0)

    def _encode(self, pieces: Iterable[Piece]) -> list[int]:
        text = "".join(self._twins[piece.text] if piece.control else piece.text for piece in pieces)
        return encode_ids(self._built, text)

    def _forged(self, ids: Sequence[int], pieces: Iterable[Piece]) -> frozenset[str]:
        """Control tokens that came out of ordinary text."""
        found = self._forgeable.intersection(ids)
        if not found:
            return frozenset()
        texts = {text for text, token in self._ids.items() if token in found}
        return frozenset(text for text in texts if any(text in piece.text for piece in pieces if not piece.control))

    def _cut(self, pieces: Iterable[Piece], forged: Iterable[str]) -> Iterator[Piece]:
        pattern = alternatives(forged)
        for piece in pieces:
            yield piece if piece.control else Piece(pattern.sub(self._with_break, piece.text))

    def _with_break(self, found: re.Match[str]) -> str:
        return found.group()[0] + self._break + found.group()[1:]


def _unknown(built: Any) -> Sequence[int]:
    """What a character that no vocabulary has becomes; nothing where the tokenizer refuses it."""
    try:
        return encode_ids(built, _MARK)
    except RequestError:
        return ()


def alternatives(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern for any of the texts, longest first; of no text it matches nothing."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def encodable(text: str, name: str = "") -> str:
    """The text as a plain string, if it is valid Unicode; raises RequestError for halves of surrogate pairs.

    ``name`` is what the caller calls the text: characters are counted in it, from 0.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{name or 'the text'} is not valid Unicode at character {error.start}: half of a surrogate pair"
        raise RequestError(message, param=name or "prompt", hint="send text that was decoded as UTF-8") from error
    return str.__str__(text)


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether no word character touches the range, as tokens for single words demand."""
    return not re.search(r"\w\Z", text[:start]) and not re.match(r"\w", text[end:])

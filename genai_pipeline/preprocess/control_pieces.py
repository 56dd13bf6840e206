"""Cuts a prompt at the control tokens that count: those that the template wrote, or in a raw prompt all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from genai_pipeline.preprocess.origin_text import REQUEST, TEMPLATE, OriginText, origin_of
from genai_pipeline.preprocess.plain_encoder import Piece

if TYPE_CHECKING:
    from genai_pipeline.preprocess.tokenizer import Tokenizer


def cut_written(tokenizer: Tokenizer, text: OriginText, request_characters: frozenset[str]) -> tuple[Piece, ...]:
    """The pieces of a rendered text; ``request_characters``: every character of what the request put into it."""
    origin = origin_of(text)

    def counts(start: int, end: int) -> bool:
        return _by_template(plain[start:end], origin[start:end], request_characters)

    plain = str.__str__(text)
    return tuple(_cut(tokenizer, plain, counts))


def cut_raw(tokenizer: Tokenizer, text: str) -> tuple[Piece, ...]:
    """The pieces of a raw prompt, in which every control token has its meaning."""
    return tuple(_cut(tokenizer, text, lambda start, end: True))


def _cut(tokenizer: Tokenizer, text: str, counts: Callable[[int, int], bool]) -> Iterator[Piece]:
    done = 0
    for start, end in tokenizer.split_control(text):
        if start < done or not counts(start, end):
            continue
        if start > done:
            yield Piece(text[done:start])
        yield Piece(text[start:end], control=True)
        done = end
    if done < len(text):
        yield Piece(text[done:])


def _by_template(token: str, origin: bytes, request_characters: frozenset[str]) -> bool:
    """Whether the template wrote this control token.

    Where an operation lost track of who wrote what, it did if the request does not even have the characters.
    """
    if REQUEST in origin:
        return False
    return all(byte == TEMPLATE for byte in origin) or not request_characters.issuperset(token)

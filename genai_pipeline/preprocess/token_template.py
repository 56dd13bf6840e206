"""Prompts written in the metadata: ``template: ["<|startoftranscript|>", "<|{language}|>", " {topic}"]``.

A piece in angle or square brackets is one token of that exact text, whatever its slots are filled with; so is a piece
without slots that is the text of a control token. Any other piece is text, in which nothing is a control token.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from genai_pipeline.errors import RequestError
from genai_pipeline.graph.uses import SLOT
from genai_pipeline.metadata.model import ParameterSpec
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Location, Problems

_TOKEN: Final = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
_CHECKED: Final = 4096  # ways to fill the slots of a piece that are tried when a package is checked


class TokenTemplate:
    """The pieces of a prompt over one tokenizer."""

    def __init__(self, pieces: Iterable[str], tokenizer: Tokenizer) -> None:
        self._pieces = [_Piece(piece, tokenizer) for piece in pieces]
        self.parameters = frozenset(f"parameters.{slot}" for piece in self._pieces for slot in piece.slots)

    def ids(self, value_of: Callable[[str], Any], wanted: Sequence[bool] | None = None) -> tuple[int, ...]:
        """The prompt of those pieces that are wanted; ``value_of`` gives the parameter of a slot.

        Raises RequestError for a token that is not there.
        """
        found: list[int] = []
        for piece in itertools.compress(self._pieces, itertools.repeat(True) if wanted is None else wanted):
            filled = piece.filled({slot: value_of(slot) for slot in piece.slots})
            ids = piece.ids(filled)
            if ids is None:
                param = f"parameters.{piece.slots[0]}" if piece.slots else None
                raise RequestError(f"the tokenizer has no token {filled!r}", param=param, hint=piece.nearest(filled))
            found += ids
        return tuple(found)


class _Piece:
    """One piece: ``token`` says whether it is one token."""

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.slots = tuple(SLOT.findall(text))
        self._text = text
        self._tokenizer = tokenizer
        is_control = not self.slots and text in tokenizer.control_tokens
        self.token = is_control or _TOKEN.fullmatch(SLOT.sub("x", text)) is not None

    def filled(self, values: Mapping[str, Any]) -> str:
        """The piece with values in its slots."""
        return SLOT.sub(lambda slot: str(values[slot.group(1)]), self._text)

    def ids(self, filled: str) -> tuple[int, ...] | None:
        """The ids of the filled piece; None where it should be a token and is none."""
        if not self.token:
            return self._tokenizer.encode_text(filled, allow_special=False)
        one = not self.slots or _TOKEN.fullmatch(filled) is not None  # a value cannot bring brackets of its own
        found = self._tokenizer.token_to_id(filled) if one else None
        return None if found is None else (found,)

    def nearest(self, filled: str) -> str:
        """A hint for a token that is not there."""
        return self._tokenizer.nearest_token(filled)


def check_template(
    pieces: Iterable[str],
    tokenizer: Tokenizer,
    parameters: Mapping[str, ParameterSpec],
    at: Location,
    problems: Problems,
) -> None:
    """Report pieces that are no tokens, for every choice that a request has."""
    for index, text in enumerate(pieces):
        piece = _Piece(text, tokenizer)
        for values in _fillings(piece, parameters):
            filled = piece.filled(values)
            if piece.ids(filled) is None:
                place = replace(at, path=f"{at.path}.template[{index}]")
                problems.error(place, "tokenizer.token_unknown", f"there is no token {filled!r}", piece.nearest(filled))


def _fillings(piece: _Piece, parameters: Mapping[str, ParameterSpec]) -> Iterator[dict[str, Any]]:
    """The ways to fill a piece's slots as far as they are known without a request."""
    known = [_known(parameters.get(slot)) for slot in piece.slots]
    if all(known):
        for values in itertools.islice(itertools.product(*known), _CHECKED):
            yield dict(zip(piece.slots, values, strict=True))


def _known(parameter: ParameterSpec | None) -> tuple[Any, ...]:
    """The values a parameter may have, its default where any is possible; empty: nothing is known."""
    if parameter is None:
        return ()
    return parameter.values or (() if parameter.default is None else (parameter.default,))

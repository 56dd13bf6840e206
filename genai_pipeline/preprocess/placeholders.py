"""Placeholders: what an image or a sound takes up in the prompt, known from its program before anything runs.

The chat template, or the caller in a raw prompt, writes one placeholder token for each item; it is replaced by the
item's share: ``count`` slots, or the text of ``expand``, in which ``features(n)`` stands for n slots. Control tokens in
that text are control tokens. A placeholder token that the request wrote into a message is ordinary text.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from genai_pipeline.errors import ExpressionError, RequestError, TemplateError
from genai_pipeline.metadata.expressions import evaluate
from genai_pipeline.metadata.model import Binding, InputSpec
from genai_pipeline.option_values import as_integer
from genai_pipeline.preprocess.control_pieces import cut_written
from genai_pipeline.preprocess.items import Item
from genai_pipeline.preprocess.origin_text import REQUEST, TEMPLATE, OriginText, characters, mark, tracked
from genai_pipeline.preprocess.plain_encoder import Piece
from genai_pipeline.preprocess.slots import Placed, Run, identities, locate

if TYPE_CHECKING:
    from genai_pipeline.preprocess.tokenizer import Tokenizer

Items = Mapping[str, Sequence[Item]]  # by input
Values = Mapping[str, Any]  # "parameters.x" -> value
MOST_SLOTS: Final = 1 << 20  # of one item
_MOST_NUMBERS: Final = 256  # of a field that expand may read: pixels and samples are not for it


class Placeholders:
    """The placeholders of a package's inputs in the prompts of one tokenizer; threads may share it."""

    def __init__(self, inputs: Iterable[InputSpec], tokenizer: Tokenizer | None) -> None:
        """Those of ``inputs`` that have one. Raises PackageError for a token that the tokenizer lacks."""
        self._tokenizer = tokenizer
        self._shares: dict[str, _Share] = {}
        for spec in inputs:
            if spec.placeholder is not None and tokenizer is not None:
                self._shares[spec.name] = _Share(spec, tokenizer)
        self._by_text = {share.token: share for share in self._shares.values()}

    @property
    def inputs(self) -> Sequence[str]:
        """The inputs that have one."""
        return tuple(self._shares)

    def expand(self, pieces: Iterable[Piece], items: Items, parameters: Values, writer: str) -> list[Piece | Run]:
        """The prompt with each placeholder replaced by its item's share, in order.

        ``writer``: who wrote them, for the RequestError about another number of placeholders than items.
        """
        pieces = list(pieces)
        for name, share in self._shares.items():
            written = sum(piece.control and piece.text == share.token for piece in pieces)
            if written != len(items[name]):
                _refuse_number(share, written, len(items[name]), writer)
        done = dict.fromkeys(self._shares, 0)
        found: list[Piece | Run] = []
        for piece in pieces:
            share_of = self._by_text.get(piece.text) if piece.control else None
            if share_of is None:
                found.append(piece)
            else:
                index = done[share_of.name]
                done[share_of.name] += 1
                found.extend(share_of.of(items[share_of.name][index], index, parameters))
        return found

    def sizes(self, items: Items, parameters: Values) -> dict[str, list[int]]:
        """The number of slots of each item, by input."""
        return {name: [share.size(item, parameters) for item in items[name]] for name, share in self._shares.items()}

    def placed(self, ids: tuple[int, ...], sizes: Mapping[str, Sequence[int]], items: Items, salt: bytes) -> Placed:
        """Positions and identities of the slots in a prompt's tokens, ``sizes`` of them for each item.

        Raises RequestError where the prompt has another number of slots.
        """
        tokens = {name: share.token_id for name, share in self._shares.items()}
        positions = locate(ids, tokens, sizes)
        return Placed(ids, positions, identities(positions, items, salt))


def run_sizes(pieces: Iterable[Piece | Run], items: Items) -> dict[str, list[int]]:
    """The number of slots of each item in an expanded prompt, by input."""
    sizes = {name: [0] * len(of_input) for name, of_input in items.items()}
    for run in runs_of(pieces):
        sizes[run.name][run.item] += run.count
    return sizes


def runs_of(pieces: Iterable[Piece | Run]) -> list[Run]:
    """The runs of an expanded prompt, in order."""
    return [piece for piece in pieces if isinstance(piece, Run)]


def once(pieces: Iterable[Piece | Run]) -> list[Piece]:
    """An expanded prompt with one token for each run."""
    return [Piece(piece.text, control=True) if isinstance(piece, Run) else piece for piece in pieces]


def full_text(pieces: Iterable[Piece | Run]) -> str:
    """The text of an expanded prompt, with every slot."""
    return "".join(piece.text * (piece.count if isinstance(piece, Run) else 1) for piece in pieces)


class _Share:
    """What the items of one input take up."""

    def __init__(self, spec: InputSpec, tokenizer: Tokenizer) -> None:
        assert spec.placeholder is not None
        self.name = spec.name
        self.token = spec.placeholder.token
        self.token_id = tokenizer.token_id(self.token)
        self._count = spec.placeholder.count
        self._program = _Expansion(spec.name, spec.placeholder.expand, tokenizer) if spec.placeholder.expand else None

    def of(self, item: Item, index: int, parameters: Values) -> Iterator[Piece | Run]:
        """The share of an item: texts, control tokens, and runs of slots."""
        for part in self._parts(item, parameters):
            if isinstance(part, Piece) and part.control and part.text == self.token:
                message = f"the share of {self.name} in the prompt writes {self.token!r} itself"
                raise RequestError(message, param=self.name, hint="in expand, features(n) stands for n slots")
            yield Run(self.name, index, self.token, self.token_id, part) if isinstance(part, int) else part

    def size(self, item: Item, parameters: Values) -> int:
        """The number of slots of an item."""
        return sum(part for part in self._parts(item, parameters) if isinstance(part, int))

    def _parts(self, item: Item, parameters: Values) -> list[Piece | int]:
        if self._program is not None:
            return self._program.parts(item, parameters)
        assert self._count is not None
        return [_slots(self.name, _counted(self.name, self._count, item, parameters))]


class _Expansion:
    """The text of ``expand``, compiled."""

    def __init__(self, name: str, source: str, tokenizer: Tokenizer) -> None:
        from genai_pipeline.preprocess.chat_template import ChatProgram

        self._name = name
        self._tokenizer = tokenizer
        self._mark = secrets.token_hex(16)  # around the number of a run: no request can contain it
        self._program = ChatProgram(source, name="the text", what=f"inputs.{name}.placeholder.expand")

    def parts(self, item: Item, parameters: Values) -> list[Piece | int]:
        """Pieces of text and numbers of slots."""
        counts: list[int] = []

        def features(count: Any) -> OriginText:
            counts.append(_slots(self._name, count))
            return OriginText.of(f"{self._mark}{len(counts) - 1}{self._mark}", TEMPLATE)

        fields = mark(_readable(item), REQUEST)
        given = {name.removeprefix("parameters."): mark(value, REQUEST) for name, value in parameters.items()}
        try:
            text = self._program.render({self._name: fields, "parameters": given, "features": features})
        except TemplateError as error:
            raise RequestError(error.message, param=self._name) from error
        return list(self._cut(text, counts, frozenset(characters([fields, given]))))

    def _cut(self, text: OriginText, counts: Sequence[int], foreign: frozenset[str]) -> Iterator[Piece | int]:
        for place, part in enumerate(text.split(self._mark)):
            if place % 2:
                yield counts[int(part)]
            else:
                yield from cut_written(self._tokenizer, tracked(part), foreign)


def _counted(name: str, count: Binding, item: Item, parameters: Values) -> Any:
    def lookup(read: str) -> Any:
        owner, _, field = read.partition(".")
        return item[field] if owner == name else parameters[read]

    try:
        return evaluate(count.expr, lookup)
    except (ExpressionError, KeyError) as error:
        reason = error.message if isinstance(error, ExpressionError) else f"nothing publishes {error}"
        raise RequestError(f"the number of slots of {name}, {count.text}: {reason}", param=name) from error


def _slots(name: str, count: Any) -> int:
    if isinstance(count, np.ndarray) and count.size == 1:
        count = count.item()
    number = as_integer(count)
    if number is None or not 1 <= number <= MOST_SLOTS:
        message = f"an item of {name} takes 1 to {MOST_SLOTS} slots of the prompt, not {count!r}"
        raise RequestError(message, param=name)
    return number


def _readable(item: Item) -> dict[str, Any]:
    """The fields that a text may be made of: numbers, texts, and short arrays as lists."""
    found: dict[str, Any] = {}
    for name, value in item.items():
        if isinstance(value, np.ndarray | np.generic):
            if value.size <= _MOST_NUMBERS:
                found[name] = value.tolist()
        elif value is None or isinstance(value, bool | int | float | str):
            found[name] = value
        elif isinstance(value, list | tuple) and len(value) <= _MOST_NUMBERS and _is_plain(value):
            found[name] = list(value)
    return found


def _is_plain(values: Sequence[Any]) -> bool:
    return all(isinstance(value, bool | int | float | str) for value in values)


def _refuse_number(share: _Share, written: int, wanted: int, writer: str) -> None:
    message = f"{writer} has {written} {share.token!r} for {wanted} {share.name}"
    hint = f"one {share.token} stands for each item, in order"
    raise RequestError(message, param=share.name, hint=hint)

"""What a closed-form decoder computes: what each token writes into the cache, and how the next token follows.

Every rule exists twice: as graph nodes, and as a few lines of integer Python that know nothing of ONNX
(``expected``). Numbers are small integers throughout, exact in every cache dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from genai_pipeline.testing.builder import GraphBuilder, Value

CELL_MODULUS = 5  # cells are 0 ... 4
HIDDEN_MODULUS = 97
PLACES = 4  # a column's content counts 1 to 4 times, by its position: the order in the cache matters
PARTS = ("key", "value")


@dataclass(frozen=True)
class Step:
    """What a graph knows before its first layer, for b rows of S tokens over T cache columns, as int64 and bool."""

    token: Value  # [b, S]
    position: Value  # [b, S]
    visible: Value  # [b, S, T]: the cache columns each token may see, its own among them
    column_position: Value  # [b, T]: the position of the token in each column
    kernel: tuple[Value, ...] = ()  # what the cache's own kernel takes: lengths or write indices


class Rule(Protocol):
    """A closed-form decoder's arithmetic."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens the logits cover."""

    @property
    def layers(self) -> int:
        """Number of cache layers."""

    def write(self, b: GraphBuilder, layer: int, part: str, hidden: Value, step: Step, cells: int) -> Value:
        """What each token writes into one cache tensor: int64 [b, S, cells]."""

    def layer(self, b: GraphBuilder, layer: int, hidden: Value, columns: Sequence[Value], step: Step) -> Value:
        """The hidden values [b, S] after a layer, given its key and value cells, float32 [b, T, cells] each."""

    def answer(self, b: GraphBuilder, hidden: Value, step: Step) -> Value:
        """The next token after each token, int64 [b, S]."""

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """The first ``count`` tokens after ``prompt``, computed without the graph; end tokens are nothing special."""


def cell_weights(layer: int, part: str, cells: int) -> NDArray[np.int64]:
    """How much each cell of a cache tensor counts: 1, 2 or 3, another pattern per layer and part."""
    return (np.arange(cells, dtype=np.int64) + layer + 2 * PARTS.index(part)) % 3 + 1


def weighted_cells(start: int, layer: int, part: str, cells: int) -> int:
    """The weighted sum of the cells (start + cell) mod 5 that a token writes, in plain integers."""
    weights = cell_weights(layer, part, cells).tolist()
    return sum(weight * ((start + cell) % CELL_MODULUS) for cell, weight in enumerate(weights))


@dataclass(frozen=True)
class SumRule:
    """FX-kv: next token = f(last token, position, sums over all cached keys and values, layer by layer).

    Hidden starts as the token; layer l writes cells (hidden + (l + 2) * position + 3 * part + cell) mod 5 and then adds
    the sum of all cells it sees, weighted by cell and by position mod 4: hidden' = (hidden + sum_key +
    2 * sum_value) mod 97. At the end
    next = first + (5 * hidden + 3 * token + 7 * position) mod (vocabulary - first), or ``end`` from position
    ``end_at`` on. Sums are exact in float32 up to 349,000 / cells tokens (21,000 with 16 cells).
    """

    vocabulary: int
    first: int = 0  # tokens below this are never answered (special tokens)
    layers: int = 2
    cells: int = 16  # heads * head_dim; the twin's sums depend on it
    end: int = 0
    end_at: int | None = None

    def write(self, b: GraphBuilder, layer: int, part: str, hidden: Value, step: Step, cells: int) -> Value:
        """See Rule.write."""
        assert cells == self.cells
        moved = b.op("Add", hidden, b.op("Mul", step.position, layer + 2))
        offsets = np.arange(cells, dtype=np.int64) + 3 * PARTS.index(part)
        return b.op("Mod", b.op("Add", b.op("Unsqueeze", moved, [-1]), offsets), CELL_MODULUS)

    def layer(self, b: GraphBuilder, layer: int, hidden: Value, columns: Sequence[Value], step: Step) -> Value:
        """See Rule.layer."""
        total = hidden
        place = b.cast(b.op("Add", b.op("Mod", step.column_position, PLACES), 1), "float32")  # [b, T]
        for part, values, factor in zip(PARTS, columns, (1, 2), strict=True):
            weights = cell_weights(layer, part, self.cells).astype(np.float32).reshape(-1, 1)
            weighted = b.op("Squeeze", b.op("MatMul", values, weights), [-1])  # [b, T]
            weighted = b.op("Mul", weighted, place)
            seen = b.op("Where", step.visible, b.op("Unsqueeze", weighted, [1]), 0.0)
            sums = b.cast(b.op("ReduceSum", seen, [-1], keepdims=0), "int64")
            total = b.op("Add", total, b.op("Mul", sums, factor))
        return b.op("Mod", total, HIDDEN_MODULUS)

    def answer(self, b: GraphBuilder, hidden: Value, step: Step) -> Value:
        """See Rule.answer."""
        mixed = b.op("Add", b.op("Mul", hidden, 5), b.op("Mul", step.token, 3))
        mixed = b.op("Add", mixed, b.op("Mul", step.position, 7))
        token = b.op("Add", b.op("Mod", mixed, self.vocabulary - self.first), self.first)
        if self.end_at is None:
            return token
        return b.op("Where", b.op("GreaterOrEqual", step.position, self.end_at), self.end, token)

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """See Rule.expected."""
        return self.generate(prompt, count, [0] * self.layers)

    def generate(self, prompt: Sequence[int], count: int, extra: Sequence[int]) -> list[int]:
        """The twin; ``extra`` is added to the hidden value in each layer: what a rule built on this one contributes."""
        tokens = list(prompt)
        sums = [[0, 0] for _ in range(self.layers)]
        for position in range(len(prompt) + count - 1):
            following = self._advance(tokens[position], position, sums, extra)
            if position >= len(prompt) - 1:
                tokens.append(following)
        return tokens[len(prompt) :]

    def _advance(self, token: int, position: int, sums: list[list[int]], extra: Sequence[int]) -> int:
        """Write one token into the running sums and return the next one."""
        hidden = token
        for layer, running in enumerate(sums):
            for index, part in enumerate(PARTS):
                start = hidden + (layer + 2) * position + 3 * index
                running[index] += (position % PLACES + 1) * weighted_cells(start, layer, part, self.cells)
            hidden = (hidden + running[0] + 2 * running[1] + extra[layer]) % HIDDEN_MODULUS
        if self.end_at is not None and position >= self.end_at:
            return self.end
        return self.first + (5 * hidden + 3 * token + 7 * position) % (self.vocabulary - self.first)


@dataclass(frozen=True)
class ScriptRule:
    """FX-script: the tokens of a script, one after another, counted from the last start token in the cache.

    ``scripts`` maps a start token to ``(lead, tokens)``: the token after the start and ``lead`` more tokens is
    ``tokens[0]``. After its last token (normally an end token) a script repeats that. A prompt without any start token
    follows the first script, as if it had started at position 0.
    """

    vocabulary: int
    scripts: Mapping[int, tuple[int, tuple[int, ...]]]
    layers: int = 1

    def write(self, b: GraphBuilder, layer: int, part: str, hidden: Value, step: Step, cells: int) -> Value:
        """Key: the number of the script that a token starts, else 0. Value: token mod 5. See Rule.write."""
        if part == "key":
            numbers = np.zeros(self.vocabulary, np.int64)
            numbers[list(self.scripts)] = np.arange(1, len(self.scripts) + 1)
            content = b.op("Gather", numbers, step.token)
        else:
            content = b.op("Mod", step.token, CELL_MODULUS)
        return b.op("Mul", b.op("Unsqueeze", content, [-1]), np.ones(cells, np.int64))

    def layer(self, b: GraphBuilder, layer: int, hidden: Value, columns: Sequence[Value], step: Step) -> Value:
        """Hidden becomes (position of the last start) * scripts + its number - 1. See Rule.layer."""
        if layer:
            return hidden
        count = len(self.scripts)
        number = b.cast(b.op("Squeeze", b.op("Slice", columns[0], [0], [1], [-1]), [-1]), "int64")  # [b, T]
        ranked = b.op("Add", b.op("Mul", step.column_position, count), b.op("Sub", number, 1))
        started = b.op("And", step.visible, b.op("Unsqueeze", b.op("Greater", number, 0), [1]))
        candidates = b.op("Where", started, b.op("Unsqueeze", ranked, [1]), 0)
        return b.op("ReduceMax", candidates, [-1], keepdims=0)

    def answer(self, b: GraphBuilder, hidden: Value, step: Step) -> Value:
        """See Rule.answer."""
        table, leads = self._table()
        number = b.op("Mod", hidden, len(self.scripts))
        offset = b.op("Sub", step.position, b.op("Div", hidden, len(self.scripts)))
        offset = b.op("Sub", offset, b.op("Gather", leads, number))
        offset = b.op("Min", b.op("Max", offset, 0), table.shape[1] - 1)
        return b.op("Gather", table.reshape(-1), b.op("Add", b.op("Mul", number, table.shape[1]), offset))

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """See Rule.expected."""
        tokens = list(prompt)
        for _ in range(count):
            starts = [index for index, token in enumerate(tokens) if token in self.scripts]
            start = starts[-1] if starts else 0
            lead, script = self.scripts[tokens[start]] if starts else next(iter(self.scripts.values()))
            offset = len(tokens) - 1 - start - lead
            tokens.append(script[min(max(offset, 0), len(script) - 1)])
        return tokens[len(prompt) :]

    def _table(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The scripts padded with their last tokens [scripts, longest], and their leads [scripts]."""
        longest = max(len(tokens) for _, tokens in self.scripts.values())
        rows = [[*tokens, *[tokens[-1]] * (longest - len(tokens))] for _, tokens in self.scripts.values()]
        return np.array(rows, np.int64), np.array([lead for lead, _ in self.scripts.values()], np.int64)

"""What a closed-form model that sees or hears answers: the words that stand in the prompt's slots, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from genai_pipeline.testing.graphs.rules import Step

if TYPE_CHECKING:
    from genai_pipeline.testing.builder import GraphBuilder, Value


@dataclass(frozen=True)
class EchoRule:
    """Answers the n-th of ``words`` that stands before the last ``start`` token, then ``end``.

    The first of them is the answer after the start token and ``lead`` more tokens. Keys hold 1 + the number of a word
    among ``words`` (0: another token), values whether a token is the start.
    """

    vocabulary: int
    words: tuple[int, ...]
    start: int
    end: int
    lead: int
    layers: int = 1

    def write(self, b: GraphBuilder, layer: int, part: str, hidden: Value, step: Step, cells: int) -> Value:
        """See Rule.write."""
        numbers = np.zeros(self.vocabulary, np.int64)
        if part == "key":
            numbers[list(self.words)] = np.arange(1, len(self.words) + 1)
        else:
            numbers[self.start] = 1
        content = b.op("Gather", numbers, step.token)
        return b.op("Mul", b.op("Unsqueeze", content, [-1]), np.ones(cells, np.int64))

    def layer(self, b: GraphBuilder, layer: int, hidden: Value, columns: Sequence[Value], step: Step) -> Value:
        """Hidden becomes 1 + the number of the word to answer, 0 when there is none left. See Rule.layer."""
        if layer:
            return hidden
        word, started = (b.cast(b.op("Squeeze", b.op("Slice", c, [0], [1], [-1]), [-1]), "int64") for c in columns)
        place = b.op("Unsqueeze", step.column_position, [1])  # [b, 1, T]
        starts = b.op("And", step.visible, b.op("Unsqueeze", b.op("Greater", started, 0), [1]))
        start = b.op("ReduceMax", b.op("Where", starts, place, 0), [-1], keepdims=1)  # [b, S, 1]
        words = b.op("And", step.visible, b.op("Unsqueeze", b.op("Greater", word, 0), [1]))
        words = b.op("And", words, b.op("Less", place, start))
        ranks = b.op("CumSum", b.cast(words, "int64"), -1)
        wanted = b.op("Sub", b.op("Unsqueeze", step.position, [-1]), start)
        wanted = b.op("Add", wanted, 1 - self.lead)  # ranks count from 1
        chosen = b.op("And", words, b.op("Equal", ranks, wanted))
        return b.op("ReduceSum", b.op("Where", chosen, b.op("Unsqueeze", word, [1]), 0), [-1], keepdims=0)

    def answer(self, b: GraphBuilder, hidden: Value, step: Step) -> Value:
        """See Rule.answer."""
        return b.op("Gather", np.array([self.end, *self.words], np.int64), hidden)

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """See Rule.expected; slots hold the words that the features stand for."""
        tokens = list(prompt)
        for _ in range(count):
            start = max((place for place, token in enumerate(tokens) if token == self.start), default=0)
            words = [token for token in tokens[:start] if token in self.words]
            number = len(tokens) - 1 - start - self.lead
            tokens.append(words[number] if 0 <= number < len(words) else self.end)
        return tokens[len(prompt) :]

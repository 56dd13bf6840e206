"""A compiler for one token per byte, and closed loops of mask and random choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.constraints.compiler import ConstraintCompiler
from genai_pipeline.constraints.spec import ConstraintSpec, Preamble, read_constraint
from genai_pipeline.constraints.state import ConstraintState
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Location
from genai_pipeline.testing.vocabulary import Vocabulary, byte_level, words

EXTRA_LOGITS = 40  # the logits are wider than the tokenizer
# Random logits alone would write texts without end: what closes strings, objects and arrays is likelier.
BOOSTS = {'"': 4.0, "}": 4.0, "]": 4.0, ",": 2.0, ":": 2.0, " ": -3.0, "\n": -4.0, "\t": -4.0, "\r": -4.0, "0": 1.0}


@dataclass(frozen=True)
class Bench:
    """A tokenizer with its compiler, and random logits to choose by."""

    tokenizer: Tokenizer
    compiler: ConstraintCompiler
    width: int  # of the logits
    boosts: np.ndarray
    noise: np.ndarray  # [4096, width] Gumbel noise: the argmax of a row is one draw

    def spec(self, options: Mapping[str, Any], preamble: Preamble | None = None) -> ConstraintSpec:
        spec = read_constraint(options)
        assert spec is not None
        return spec.after(preamble)

    def start(self, options: Mapping[str, Any], preamble: Preamble | None = None) -> ConstraintState:
        return self.compiler.compile(self.spec(options, preamble)).start()

    def allowed(self, state: ConstraintState) -> frozenset[int]:
        row = np.full((self.width + 31) // 32, -1, np.int32)
        state.fill(row)
        return frozenset(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())

    def run(self, state: ConstraintState, seed: int, most: int) -> tuple[list[int], bool]:
        """Tokens of one run by random logits, and whether it ended by itself within ``most`` tokens."""
        row = np.zeros((self.width + 31) // 32, np.int32)
        chosen: list[int] = []
        for step in range(most):
            state.fill(row)
            bits = np.unpackbits(row.view(np.uint8), count=self.width, bitorder="little").view(bool)
            noise = self.noise[(seed * 7919 + step) % len(self.noise)]
            token = int(np.where(bits, self.boosts + noise, -np.inf).argmax())
            assert bits[token]
            state.accept(token)
            if token in self.tokenizer.end_ids:
                return chosen, True
            chosen.append(token)
        return chosen, False

    def text(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special=False)

    def accepts(self, options: Mapping[str, Any], text: str, preamble: Preamble | None = None) -> bool:
        """Whether a text is a whole answer."""
        state = self.start(options, preamble)
        for token in self.tokenizer.encode_text(text, allow_special=True):
            if token not in self.allowed(state):
                return False
            state.accept(token)
        return bool(self.tokenizer.end_ids & self.allowed(state))


def _bench(folder: Path, vocabulary: Vocabulary) -> Bench:
    vocabulary.write(folder / "tokenizer.json")
    spec = TokenizerSpec(Location("test"), "text", "tokenizer.json", eos=("<|im_end|>",))
    tokenizer = Tokenizer.load(folder, spec)
    width = tokenizer.highest_id + 1 + EXTRA_LOGITS
    boosts = np.zeros(width)
    for text, boost in BOOSTS.items():
        token = tokenizer.encode_text(text, allow_special=False)
        boosts[list(token)] = boost
    boosts[list(tokenizer.end_ids)] = 5.0
    noise = np.random.default_rng(7).gumbel(size=(4096, width))
    return Bench(tokenizer, ConstraintCompiler(tokenizer, width, tokenizer.end_ids), width, boosts, noise)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One token per byte."""
    return _bench(tmp_path_factory.mktemp("bytes"), byte_level())


@pytest.fixture(scope="session")
def word_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Tokens of several characters: words and single ASCII characters."""
    return _bench(tmp_path_factory.mktemp("words"), words("hello", "world", "yes", "yesterday", '{"', '":', "name"))


@pytest.fixture
def schema() -> Callable[[Any], dict[str, Any]]:
    """The options of a request for a schema."""
    return lambda value: {"response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": value}}}

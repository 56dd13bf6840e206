"""What an operation knows besides its inputs and parameters: whose call it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from genai_pipeline.errors import PackageError

if TYPE_CHECKING:
    from genai_pipeline.preprocess.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class OpContext:
    """One call of an operation.

    ``stage`` is the path of the stage's id, ``item`` the index of each ``for_each`` around it and of each step of an
    ``iterate`` loop, the outermost first. In the body of a decode loop ``start`` and ``stop`` are the half-open range
    of the row's new tokens in its sequence.
    """

    tokenizers: Mapping[str, Tokenizer] = field(default_factory=dict)
    seed: int = 0  # of the request
    stage: str = ""
    item: tuple[int, ...] = ()
    start: int = 0
    stop: int = 0
    owned: frozenset[str] = frozenset()  # inputs that nobody reads afterwards: they may be changed in place

    def generator(self) -> np.random.Generator:
        """Random numbers of this call alone: the same seed, stage and item give the same ones in any company."""
        words = repr((self.seed, self.stage, self.item, self.start)).encode()
        key = np.frombuffer(blake2b(words, digest_size=16, person=b"op noise").digest(), np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    def tokenizer(self, name: str | None) -> Tokenizer:
        """The tokenizer of that name, or the package's first. Raises PackageError when there is none."""
        if name is None and self.tokenizers:
            return next(iter(self.tokenizers.values()))
        found = self.tokenizers.get(name or "")
        if found is None:
            what = f"no tokenizer '{name}'" if name else "no tokenizer"
            raise PackageError(f"stage '{self.stage}' needs a tokenizer, and the package has {what}")
        return found

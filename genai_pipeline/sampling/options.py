"""The effective options of generation, as every part of sampling reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

_NO_BIAS: Final[Mapping[int, float]] = MappingProxyType({})
DRY_BREAKERS: Final = ("\n", ":", '"', "*")  # where the reference of DRY lets no repetition cross


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """Effective options of one request; what each does, and in which order, is in docs/sampling.md."""

    max_new_tokens: int | None = None  # None: up to the context
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    top_a: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_sequence_breakers: tuple[int | str, ...] = DRY_BREAKERS
    dry_range: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: _NO_BIAS)
    banned_token_ids: tuple[int, ...] = ()
    forced_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    logprobs: bool = False
    top_logprobs: int = 0
    logprobs_of: Literal["model", "processed"] = "model"
    prompt_logprobs: int | None = None  # score the prompt's tokens, with so many alternatives each; None: do not
    num_beams: int = 1  # hypotheses that a beam search keeps; 1: no search
    length_penalty: float = 1.0  # a hypothesis scores the sum of its log probabilities / its length ** this
    early_stopping: bool = False  # end a search as soon as num_beams hypotheses have ended
    speculate: bool = True  # let a drafter guess ahead; tokens are the same with and without
    sources: Mapping[str, str] = field(default_factory=dict)  # option -> "request", "package" or "default"

    @property
    def greedy(self) -> bool:
        """Whether tokens are the argmax of the logits."""
        return self.temperature == 0


BUILT_IN: Final = GenerationOptions()


def changed(options: GenerationOptions, name: str) -> bool:
    """Whether an option differs from its built-in value, at which it does nothing."""
    value: Any = getattr(options, name)
    return bool(value != getattr(BUILT_IN, name))

"""Greedy answers with the likeliest tokens at each place, and those of the package under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from genai_pipeline.errors import PromptTooLongError
from genai_pipeline.types import TokenLogprob

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genai_pipeline.pipeline import Pipeline

TOP: Final = 20  # of the likeliest tokens are compared one by one, the others as one
Top = tuple[TokenLogprob, ...]

# What the defaults of a package may do to a choice of tokens; a reference knows nothing of it.
_SHAPING: Final = (
    "min_new_tokens",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "no_repeat_ngram_size",
    "dry_multiplier",
    "mirostat",
    "xtc_probability",
    "logit_bias",
    "banned_token_ids",
    "forced_token_ids",
    "stop",
    "num_beams",
)


@dataclass(frozen=True, slots=True)
class Answered:
    """One prompt and its greedy tokens, end tokens included and not minded; ``top`` has the likeliest at each place."""

    text: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    top: tuple[Top, ...] = ()  # likeliest first; empty: not known


@dataclass(frozen=True, slots=True)
class Reference:
    """What a reference answered, and which one it is."""

    source: str
    versions: Mapping[str, str]
    answers: tuple[Answered, ...]
    package: Mapping[str, str] = field(default_factory=dict)  # of recorded ones: what they were recorded of


class LogitsModel(Protocol):
    """A model that gives logits one place at a time."""

    def start(self, tokens: Sequence[int]) -> NDArray[Any]:
        """Begin a sequence; the logits [vocabulary] after its last token."""

    def step(self, token: int) -> NDArray[Any]:
        """Add a token; the logits [vocabulary] after it."""


def answered_by(model: LogitsModel, text: str, prompt: Sequence[int], count: int) -> Answered:
    """The greedy answer of a model that gives logits."""
    tokens: list[int] = []
    tops: list[Top] = []
    logits = model.start(prompt)
    while True:
        top = likeliest(logits)
        tokens.append(top[0].token)
        tops.append(top)
        if len(tokens) == count:
            return Answered(text, tuple(prompt), tuple(tokens), tuple(tops))
        logits = model.step(tokens[-1])


def likeliest(logits: NDArray[Any]) -> Top:
    """The likeliest tokens of logits [vocabulary] with their log probabilities; of equal ones the lowest id first."""
    import numpy as np

    values = logits.astype(np.float64)
    scores = values - values.max()
    scores -= np.log(np.exp(scores).sum())
    order = np.argsort(-scores, kind="stable")[:TOP]
    return tuple(TokenLogprob(int(token), float(scores[token])) for token in order)


def fitting_prompts(pipe: Pipeline, texts: Sequence[str], count: int) -> list[tuple[str, tuple[int, ...]]]:
    """Texts with their tokens as a request has them. Raises PromptTooLongError where ``count`` more do not fit."""
    found = []
    for text in texts:
        prompt = pipe.tokenize(text)
        if len(prompt) + count > pipe.context_length:
            raise PromptTooLongError(
                f"a prompt of {len(prompt)} tokens and {count} more do not fit the context of {pipe.context_length}",
                hint="give shorter prompts, or fewer tokens",
            )
        found.append((text, prompt))
    return found


def greedy(pipe: Pipeline, prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """The package's greedy tokens, whatever its defaults do to choices, end tokens included and not minded."""
    from genai_pipeline.sampling.options import BUILT_IN

    spec = pipe.plan.package.generation
    declared = spec.defaults if spec is not None else {}
    plain: dict[str, Any] = {name: getattr(BUILT_IN, name) for name in _SHAPING if name in declared}
    options: Any = {**plain, "temperature": 0, "ignore_eos": True, "max_new_tokens": count}
    return pipe.generate(tokens=list(prompt), **options).tokens


def forced(pipe: Pipeline, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[Top, ...]:
    """The package's likeliest tokens at the place of each of ``tokens``, given all that come before it."""
    scored = pipe.score(tokens=[*prompt, *tokens], top=TOP).logprobs
    return tuple(entry.top for entry in scored[len(prompt) - 1 :])


def own_answers(pipe: Pipeline, prompts: Sequence[tuple[str, Sequence[int]]], count: int) -> tuple[Answered, ...]:
    """What the package itself answers, as a mark to notice later changes by."""
    found = []
    for text, prompt in prompts:
        tokens = greedy(pipe, prompt, count)
        found.append(Answered(text, tuple(prompt), tokens, forced(pipe, prompt, tokens)))
    return tuple(found)

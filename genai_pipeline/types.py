"""Values that cross the public boundary: options of a request, events of a stream, results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import numpy as np

FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "error"]


class RequestOptions(TypedDict, total=False):
    """What a request may set besides its prompt. Anything else is refused by name."""

    messages: Sequence[Mapping[str, Any]]  # a conversation, instead of a prompt
    tokens: Sequence[int]  # token ids, instead of a prompt
    system: str  # a system message before a plain prompt
    raw: bool  # send the prompt as it is, without the chat template
    parameters: Mapping[str, Any]  # declared parameters of the package
    timeout: float | None  # seconds for queue and run together
    priority: Literal["low", "normal", "high"]
    key: str  # whose share of the machine the request uses, under the policy fair_share
    max_new_tokens: int | None  # None: up to the context
    min_new_tokens: int
    temperature: float  # 0 is greedy
    top_k: int  # 0: all
    top_p: float
    min_p: float
    seed: int | None  # None: a fresh one
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    n: int  # samples of one prompt


PROMPT_OPTIONS = ("messages", "tokens", "system", "raw", "parameters")
QUEUE_OPTIONS = ("timeout", "priority", "key")


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request: ``completion_tokens`` counts every sampled token, the end token too."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    def to_dict(self) -> dict[str, int]:
        """The counts as JSON-ready fields."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
        }


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall seconds of a request; a phase that did not happen is None."""

    queued: float | None = None  # submitted -> admitted
    first_token: float | None = None  # submitted -> first token
    prefill: float | None = None  # admitted -> first token
    decode: float | None = None  # first token -> last token
    graph: float | None = None  # inside graph runs that this request took part in
    total: float | None = None

    def to_dict(self) -> dict[str, float]:
        """The phases that happened, as JSON-ready fields."""
        names = ("queued", "first_token", "prefill", "decode", "graph", "total")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a stream: a token with the text it releases, or text released late (``token`` None).

    The last event of a choice has ``finish_reason``; the last of the request has ``usage`` and ``timings`` too.
    """

    index: int = 0
    token: int | None = None
    text: str = ""
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    error: BaseException | None = None
    logprobs: Any = None
    reasoning: str = ""
    tool_calls: Sequence[Any] = ()
    audio: Any = None
    outputs: Mapping[str, Any] | None = None  # on the last event of a request: every declared output
    notes: tuple[str, ...] = ()  # on the last event of a request


@dataclass(frozen=True, slots=True)
class Choice:
    """One sample of a request: ``tokens`` are the generated ids without the end token."""

    index: int
    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What ``generate`` returns: the first choice's fields, all ``choices``, usage and timings."""

    choices: tuple[Choice, ...]
    usage: Usage
    timings: Timings
    outputs: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # e.g. a capped limit

    @property
    def text(self) -> str:
        """Text of the first choice."""
        return self.choices[0].text

    @property
    def tokens(self) -> tuple[int, ...]:
        """Generated ids of the first choice, without the end token."""
        return self.choices[0].tokens

    @property
    def finish_reason(self) -> FinishReason:
        """Why the first choice ended."""
        return self.choices[0].finish_reason

    def to_dict(self) -> dict[str, Any]:
        """The result as the fields of ``run --json``."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "finish_reason": self.finish_reason,
            "choices": [
                {"index": c.index, "text": c.text, "tokens": list(c.tokens), "finish_reason": c.finish_reason}
                for c in self.choices
            ],
            "usage": self.usage.to_dict(),
            "timings": self.timings.to_dict(),
            "notes": list(self.notes),
        }


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a port's dtype name; bfloat16 and the 8-bit floats come from ml_dtypes."""
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extended

"""Values that cross the public boundary: options of a request, events of a stream, results.

Longer than most modules because it is one list of what callers see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import numpy as np

    from genai_pipeline.backends.placement import GraphPlacement

FinishReason = Literal["stop", "length", "tool_calls", "cancelled", "error"]


class RequestOptions(TypedDict, total=False):
    """What a request may set besides its prompt. Anything else is refused by name."""

    messages: Sequence[Mapping[str, Any]]  # a conversation, instead of a prompt
    tokens: Sequence[int]  # token ids, instead of a prompt
    system: str  # a system message before a plain prompt
    raw: bool  # send the prompt as it is, without the chat template
    suffix: str  # what comes after the text that is wanted, for packages that fill in
    images: Any  # one image or a list: paths, bytes, data URLs, binary files, PIL images, uint8 arrays [h, w, c]
    audio: Any  # one sound or a list: paths, bytes, data URLs, binary files, (samples, rate)
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
    typical_p: float
    top_a: float
    xtc_probability: float
    xtc_threshold: float
    mirostat: int  # 0: off, 2: Mirostat 2.0 in place of the filters above
    mirostat_tau: float  # bits
    mirostat_eta: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    no_repeat_ngram_size: int  # 0: off
    dry_multiplier: float  # 0: off
    dry_base: float
    dry_allowed_length: int
    dry_sequence_breakers: Sequence[int | str]
    dry_range: int  # tokens; 0: all
    logit_bias: Mapping[int, float] | Mapping[str, float]
    banned_token_ids: Sequence[int]
    forced_token_ids: Sequence[int]  # the first tokens of the answer
    logprobs: bool
    top_logprobs: int
    logprobs_of: Literal["model", "processed"]
    seed: int | None  # None: a fresh one
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    n: int  # samples of one prompt
    prompt_logprobs: int | None  # score the prompt's tokens, with so many alternatives for each
    response_format: Mapping[str, Any]  # {"type": "json_object"} or {"type": "json_schema", "json_schema": {...}}
    regex: str  # the whole answer matches it
    grammar: str  # the answer follows it (Lark)
    choices: Sequence[str]  # the answer is one of these
    tools: Sequence[Mapping[str, Any]]  # functions that the model may call
    tool_choice: str | Mapping[str, Any]  # "auto", "none", "required", or one function
    parallel_tool_calls: bool  # False: at most one call
    reasoning_effort: Literal["none", "low", "medium", "high"]
    reasoning_budget: int  # most tokens of reasoning
    chat_template_kwargs: Mapping[str, Any]  # further variables of the chat template
    num_beams: int  # hypotheses of a beam search, for packages that declare it; 1: none
    length_penalty: float  # a hypothesis scores the sum of its log probabilities / its length ** this
    early_stopping: bool  # end a search as soon as num_beams hypotheses have ended
    speculate: bool  # False: no drafts for this request, whatever the package was loaded with


PROMPT_OPTIONS = ("messages", "tokens", "system", "raw", "suffix", "images", "audio", "parameters")
QUEUE_OPTIONS = ("timeout", "priority", "key")


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request: ``completion_tokens`` counts every sampled token, the end token too.

    ``drafted_tokens`` were verified, ``accepted_tokens`` of them joined the answer; None where nothing was drafted.
    ``graphs`` says what runs each graph of the package.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    graphs: tuple[GraphPlacement, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The counts, and the graphs where they are known, as JSON-ready fields."""
        names = ("prompt_tokens", "completion_tokens", "cached_tokens", "drafted_tokens", "accepted_tokens")
        counts = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {**counts, **({"graphs": [graph.to_dict() for graph in self.graphs]} if self.graphs else {})}


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
class ToolCallDelta:
    """A piece of a tool call: first its id and name, then pieces of its arguments, JSON text when joined.

    ``withdrawn``: the call of this index turned out to be none; all of its text follows as text.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    withdrawn: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The piece as JSON-ready fields, in the shape OpenAI's streams have."""
        function = {"name": self.name} if self.name is not None else {}
        named = {"id": self.id, "type": "function"} if self.id is not None else {}
        withdrawn = {"withdrawn": True} if self.withdrawn else {}
        return {"index": self.index, **named, "function": {**function, "arguments": self.arguments}, **withdrawn}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A whole tool call; ``arguments`` is the JSON text of an object."""

    id: str
    name: str
    arguments: str

    def to_dict(self) -> dict[str, Any]:
        """The call as JSON-ready fields, in OpenAI's shape."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and its log probability, in nats."""

    token: int
    logprob: float

    def to_dict(self) -> dict[str, Any]:
        """The pair as JSON-ready fields; null for a token that cannot be."""
        return {"token": self.token, "logprob": _finite(self.logprob)}


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A chosen token with its log probability, and the most likely tokens at its place, likeliest first."""

    token: int
    logprob: float  # nats
    top: tuple[TokenLogprob, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON-ready fields."""
        return {
            "token": self.token,
            "logprob": _finite(self.logprob),
            "top": [other.to_dict() for other in self.top],
        }


def _finite(number: float) -> float | None:
    """A number as JSON has it, which knows no infinity."""
    return number if math.isfinite(number) else None


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a stream: a token with the text it releases, or text released late (``token`` None).

    An end token has an event only for its ``logprobs``, where those were asked for; ``token`` is None then, too.
    The last event of a choice has ``finish_reason``; the last of the request has ``usage`` and ``timings`` too.
    """

    index: int = 0
    token: int | None = None
    text: str = ""
    finish_reason: FinishReason | None = None
    stop_string: str | None = None  # which ended the choice, with finish reason "stop"; None: another thing did
    usage: Usage | None = None
    timings: Timings | None = None
    error: BaseException | None = None
    logprobs: TokenLogprobs | None = None
    reasoning: str = ""
    tool_calls: Sequence[ToolCallDelta] = ()
    audio: Any = None
    outputs: Mapping[str, Any] | None = None  # on the last event of a request: every declared output
    notes: tuple[str, ...] = ()  # on the last event of a request
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None  # on the last event of a request that asked for them


@dataclass(frozen=True, slots=True)
class Choice:
    """One sample of a request: ``tokens`` are the generated ids without the end token."""

    index: int
    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    error: BaseException | None = None
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None  # of each token, the end token too; None: not asked for

    def to_dict(self) -> dict[str, Any]:
        """The choice as JSON-ready fields; what it does not have is left out."""
        optional: dict[str, Any] = {
            "reasoning": self.reasoning,
            "tool_calls": [call.to_dict() for call in self.tool_calls],
            "logprobs": [logprobs.to_dict() for logprobs in self.logprobs or ()],
        }
        return {
            "index": self.index,
            "text": self.text,
            "tokens": list(self.tokens),
            "finish_reason": self.finish_reason,
            **{name: value for name, value in optional.items() if value},
        }


@dataclass(frozen=True, slots=True)
class Result:
    """What ``generate`` returns: the first choice's fields, all ``choices``, usage and timings."""

    choices: tuple[Choice, ...]
    usage: Usage
    timings: Timings
    outputs: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # e.g. a capped limit
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None  # of the prompt's tokens from the second on

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

    @property
    def reasoning(self) -> str:
        """Reasoning of the first choice."""
        return self.choices[0].reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Tool calls of the first choice."""
        return self.choices[0].tool_calls

    def to_dict(self) -> dict[str, Any]:
        """The result as the fields of ``run --json``."""
        scores = self.prompt_logprobs
        scored = {} if scores is None else {"prompt_logprobs": [logprobs.to_dict() for logprobs in scores]}
        first = self.choices[0].to_dict()
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "finish_reason": self.finish_reason,
            **{name: first[name] for name in ("reasoning", "tool_calls") if name in first},
            "choices": [choice.to_dict() for choice in self.choices],
            "usage": self.usage.to_dict(),
            "timings": self.timings.to_dict(),
            "notes": list(self.notes),
            **scored,
        }


@dataclass(frozen=True, slots=True)
class Score:
    """What ``score`` returns: a prompt's tokens, and the log probability of each after the first."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]  # logprobs[i] is of tokens[i + 1]
    usage: Usage

    @property
    def logprob(self) -> float:
        """The log probability of the whole prompt after its first token, in nats."""
        return math.fsum(scored.logprob for scored in self.logprobs)

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log probability; 1 for a prompt of one token, where nothing is predicted.

        Infinite where it is beyond what a float holds.
        """
        try:
            return math.exp(-self.logprob / max(1, len(self.logprobs)))
        except OverflowError:
            return math.inf


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of a port's dtype name; bfloat16 and the 8-bit floats come from ml_dtypes."""
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extended

"""One sequence of tokens in a decode loop: the only object that a committed step changes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from genai_pipeline.scheduler.ticket import ANY_CHUNKS, Chunks
from genai_pipeline.speculative.stats import SpeculationStats
from genai_pipeline.types import FinishReason, TokenLogprobs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from genai_pipeline.constraints.state import ConstraintState
    from genai_pipeline.engine.beams import Search
    from genai_pipeline.engine.request import RequestState
    from genai_pipeline.engine.scope_run import Call
    from genai_pipeline.engine.text_output import TextOutput
    from genai_pipeline.kv.prefix_keys import Identity
    from genai_pipeline.parsing.budget import ReasoningBudget
    from genai_pipeline.sampling.params import GenerationOptions
    from genai_pipeline.sampling.state import SamplingState

NO_ROW = -1
NO_DRAFTS = SpeculationStats()


class Outer(NamedTuple):
    """What a loop's body reads of the request besides the tokens (see ``outer_values``)."""

    digest: bytes = b""  # equal for equal values; empty when the body reads none
    batch_key: Hashable = ()  # rows with different keys never share a run


class Sequence:
    """Prompt and chosen tokens of one choice of a request, and how far their state is computed."""

    __slots__ = (
        "budget",
        "call",
        "carried",
        "choice",
        "chunks",
        "constraint",
        "drafts",
        "entered",
        "error",
        "extra_pages",
        "finish_reason",
        "id",
        "identities",
        "loop",
        "max_tokens",
        "not_yet",
        "num_cached",
        "num_computed",
        "num_prompt",
        "options",
        "outer",
        "request",
        "row",
        "salt",
        "sampling",
        "scores",
        "search",
        "seed",
        "source",
        "speculation",
        "text",
        "tokens",
    )

    def __init__(
        self,
        id: int,
        request: RequestState,
        loop: str,
        prompt: tuple[int, ...],
        *,
        max_tokens: int,
        seed: int,
        choice: int,
        text: TextOutput,
        source: Sequence | None = None,
        salt: bytes = b"",
        outer: Outer | None = None,
        not_yet: NDArray[np.int64] | None = None,
        sampling: SamplingState | None = None,
        constraint: ConstraintState | None = None,
        budget: ReasoningBudget | None = None,
        options: GenerationOptions | None = None,
        chunks: Chunks = ANY_CHUNKS,
        identities: tuple[Identity, ...] = (),
        extra_pages: int = 0,
    ) -> None:
        self.id = id
        self.request = request
        self.loop = loop
        self.call: Call | None = None  # of the stage, once the request's walk has started it
        self.options = options or request.request.options  # those of its request that count in its loop
        self.carried: Mapping[str, Any] = {}  # what its loop carries to the next run
        self.tokens = list(prompt)
        self.num_prompt = len(prompt)
        self.num_computed = 0
        self.entered = False  # whether it ever had a row
        self.num_cached = 0  # prompt tokens whose state came from the prefix cache
        self.row = NO_ROW
        self.identities = identities  # whose slots tokens of its prompt are
        self.extra_pages = extra_pages  # that its state takes besides those of its tokens
        self.chunks = chunks  # how many tokens its runs may take
        self.max_tokens = max_tokens  # most tokens to choose
        self.seed = seed
        self.choice = choice
        self.text = text
        self.source = source  # the sequence whose prompt this one shares, to be forked
        self.outer = outer or Outer()
        self.salt = salt  # keeps its cached state apart from that of sequences with another salt
        self.not_yet = not_yet  # ids that may not be chosen before the minimum length
        self.sampling = sampling  # what its options need to remember
        self.budget = budget  # when reasoning has to end
        self.constraint = constraint  # what may come next
        self.speculation = NO_DRAFTS
        self.search: Search | None = None  # the beam search that it is a beam of
        self.drafts: list[int] = []  # tokens that the next run verifies
        scored = self.options.prompt_logprobs is not None and source is None
        self.scores: list[TokenLogprobs] | None = [] if scored else None  # of the prompt's tokens from the second on
        self.finish_reason: FinishReason | None = None
        self.error: BaseException | None = None

    @property
    def values(self) -> Mapping[str, Any]:
        """What its loop's body can read besides the tokens, by value key."""
        return self.request.values if self.call is None else self.call.values

    @property
    def item(self) -> tuple[int, ...]:
        """Its place in the lists around its loop."""
        return () if self.call is None else self.call.item

    def known(self, start: int, stop: int) -> list[int]:
        """Tokens [start, stop), drafts after the last chosen one."""
        tokens = self.tokens[start:stop]
        missing = stop - start - len(tokens)
        return tokens + self.drafts[:missing] if missing else tokens

    @property
    def num_generated(self) -> int:
        """Tokens chosen so far, an end token included."""
        return len(self.tokens) - self.num_prompt

    def num_decoded(self, start: int) -> int:
        """Decode steps before the run that starts at token ``start``."""
        return max(0, start - self.num_prompt + 1)

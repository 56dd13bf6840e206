"""What bounds and ends the sequences of a decode loop, and what its batches may look like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from genai_pipeline.engine.admission import Bounds
from genai_pipeline.engine.text_output import PieceDecoder
from genai_pipeline.scheduler.ticket import ANY_CHUNKS, Chunks

if TYPE_CHECKING:
    from genai_pipeline.constraints.compiler import ConstraintCompiler
    from genai_pipeline.engine.sequence import Sequence
    from genai_pipeline.parsing.reader import AnswerReader
    from genai_pipeline.preprocess.tokenizer import Tokenizer
    from genai_pipeline.sampling.params import GenerationOptions
    from genai_pipeline.sampling.time_marks import TimeRule


@dataclass(frozen=True, slots=True)
class LoopRules:
    """Frozen facts of one loop."""

    bounds: Bounds
    end_ids: frozenset[int]  # union of every declaration
    suppressed: tuple[int, ...]  # never chosen
    streams: bool  # whether its tokens or text are a declared output
    snapshots: bool  # whether state can be resumed only where a snapshot was taken, as recurrent state
    batches_rows: bool = False  # whether a batch is a range of rows, as where state lies in arenas
    drafts_alone: bool = False  # whether several tokens on top of a past run in single rows only
    not_first: tuple[int, ...] = ()  # not chosen as the first token of an answer
    vocabulary: int = 0  # width of the logits
    decoder: Callable[[frozenset[int]], PieceDecoder] | None = None  # makes one that shows these control tokens
    reader: AnswerReader | None = None  # tells the parts of answers apart; None for loops without text
    modes: frozenset[str] | None = None  # kinds of constraint the model is good for; None: nothing is said
    times: TimeRule | None = None  # of its tokens that mark times
    identified: frozenset[str] = frozenset()  # values around the loop that its prompt's identities stand for
    chunks: Chunks = ANY_CHUNKS  # how many tokens runs of one row may take
    keeps: bool = True  # whether state of prefixes is kept for other sequences
    resumes: bool = True  # whether a sequence may start on state of a part of its tokens
    tokenizers: Mapping[str, Tokenizer] = field(default_factory=dict)  # of the package, for operations of the body
    compiler: ConstraintCompiler | None = None  # of constraints; None for loops without text

    @property
    def mask_words(self) -> int:
        """Words of 32 bits that hold a bit for every token."""
        return -(-self.vocabulary // 32)

    def end_tokens(self, options: GenerationOptions) -> frozenset[int]:
        """The tokens that end an answer under a request's options."""
        return frozenset(options.stop_token_ids) | (frozenset() if options.ignore_eos else self.end_ids)

    def ends(self, sequence: Sequence, token: int) -> bool:
        """Whether ``token`` is an end token for a sequence's request."""
        options = sequence.options
        return token in options.stop_token_ids or (token in self.end_ids and not options.ignore_eos)

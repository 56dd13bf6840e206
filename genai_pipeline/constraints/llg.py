"""The home of llguidance: vocabularies, compiled grammars and limits. Imported only when a request asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.constraints.token_table import TokenTable
from genai_pipeline.errors import ConstraintRunError, ExtraMissingError

if TYPE_CHECKING:
    import llguidance

INSTALL: Final = "pip install 'genai-pipeline[structured]'"
END_NAME: Final = b"<|end of answer|>"

# Where the tokenizer writes a piece of text otherwise than within a text, no token is forced in masks either.
_NO_FORCING: Final = '%llguidance {"no_forcing": true}\n'

# A step works through at most this many parser items, a row of them costs up to about 70 ms; the states of a regular
# expression take up to about 40 MB per request.
_LIMITS: Final = {
    "max_items_in_row": 1000,
    "step_max_items": 20_000,
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}


def require() -> Any:
    """The llguidance library. Raises ExtraMissingError."""
    try:
        import llguidance
    except ImportError as error:
        message = "structured output needs the library llguidance, which is not installed"
        raise ExtraMissingError(message, hint=INSTALL) from error
    return llguidance


class GrammarVocabulary:
    """A vocabulary as the library sees it: the tokens of a table, and one more token that means the end of the answer.

    The end tokens of a request are put in by us, so that one vocabulary serves requests with different ones.
    """

    def __init__(self, table: TokenTable) -> None:
        library = require()
        self.size = len(table.texts)
        self.end = self.size
        self.words = (self.size + 32) // 32  # of a mask with the end
        self.canonical = table.canonical
        self.handle: llguidance.LLTokenizer = library.LLTokenizer(
            _Tokens(table), eos_token=[self.end], slices=library.LLTokenizer.json_slices()
        )

    def matcher(self, grammar: str) -> tuple[Matcher | None, str]:
        """A matcher of Lark text at its start, or None and what the library has against it."""
        library = require()
        limits = library.LLParserLimits(**_LIMITS)
        whole = library.LLMatcher.grammar_from_lark(grammar if self.canonical else _NO_FORCING + grammar)
        matcher = library.LLMatcher(self.handle, whole, log_level=0, limits=limits)
        if matcher.is_error():
            return None, str(matcher.get_error())
        return Matcher(matcher, self), ""


class _Tokens:
    """What the library asks of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, table: TokenTable) -> None:
        control = {token: text for text, token in table.tokenizer.control_tokens.items()}
        self._table = table
        self.tokens = [*table.texts, END_NAME]
        self.eos_token_id = len(table.texts)
        self.special_token_ids = [*(token for token in control if token < self.eos_token_id), self.eos_token_id]
        for token in self.special_token_ids[:-1]:
            self.tokens[token] = control[token].encode()

    def __call__(self, text: str | bytes) -> list[int]:
        """Ids of a piece of text: what the library forces must write exactly what the grammar says."""
        return self._table.pieces(text.encode() if isinstance(text, str) else bytes(text))


class Matcher:
    """A position in a grammar. Copies are independent; one matcher is used by one thread at a time."""

    def __init__(self, handle: llguidance.LLMatcher, vocabulary: GrammarVocabulary) -> None:
        self._handle = handle
        self._vocabulary = vocabulary
        self._mask = np.zeros(vocabulary.words, np.int32)

    def copy(self) -> Matcher:
        """An independent matcher at the same position."""
        return Matcher(self._handle.deep_copy(), self._vocabulary)

    def mask(self) -> NDArray[np.int32]:
        """Bits of the tokens that may follow, overwritten by the next call. Raises ConstraintRunError.

        The bit of the vocabulary's ``end`` is no token of the model.
        """
        self._handle.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        self._check()
        return self._mask

    def accepts_end(self) -> bool:
        """Whether the answer may end here. Raises ConstraintRunError."""
        accepting = bool(self._handle.is_accepting())
        self._check()
        return accepting

    def consume(self, token: int) -> bool:
        """Go one token on; false, and no move, where it may not follow. Raises ConstraintRunError."""
        taken = self._handle.try_consume_tokens([token]) == 1
        self._check()
        return taken

    def complete(self) -> bool:
        """Whether nothing may follow but the end."""
        return bool(self._handle.is_stopped()) and not self._handle.is_error()

    def forced(self) -> Sequence[int]:
        """Tokens that must follow, as the tokenizer itself would write them; empty where that is not certain."""
        if not self._vocabulary.canonical or self._handle.is_stopped():
            return ()
        tokens: list[int] = self._handle.compute_ff_tokens()
        self._check()
        return tokens[: self._handle.validate_tokens(tokens)] if tokens else ()

    def _check(self) -> None:
        if not self._handle.is_error():
            return
        reason = str(self._handle.get_error()).split("\n", 1)[0]
        if "NoExtensionBias" in reason:
            raise ConstraintRunError("the vocabulary has no token for what must follow in this constraint")
        message = f"the constraint cannot be followed further: {reason}"
        raise ConstraintRunError(message, hint="simplify the schema or grammar where it leaves much open at once")

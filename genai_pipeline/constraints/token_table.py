"""What the tokens of a vocabulary write, as constraints need it: bytes, and tokens for pieces of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from genai_pipeline.errors import OptionError
from genai_pipeline.preprocess.token_bytes import DecodedBytes
from genai_pipeline.preprocess.tokenizer import Tokenizer

_CHECKED: Final = 512  # tokens whose texts are compared joined and apart
# Texts whose encoding shows whether text may be tokenised piece by piece, as fast-forwarding does.
_PROBES: Final = ("a", " a", "a b", "\n", '{"a": 1}', "  x")


@dataclass(frozen=True)
class TokenTable:
    """The bytes of each token up to the width of the logits; empty for tokens that no text may contain."""

    tokenizer: Tokenizer
    vocabulary_size: int

    @cached_property
    def texts(self) -> list[bytes]:
        """Bytes by id. Raises OptionError when tokens have no bytes of their own."""
        size = min(self.tokenizer.highest_id + 1, self.vocabulary_size)
        table = self.tokenizer.byte_table
        if table is not None:
            return [table[token] for token in range(size)]
        decoded = DecodedBytes(self.tokenizer)
        texts = [decoded[token] for token in range(size)]
        self._check_joined(texts)
        return texts

    @cached_property
    def drops_space(self) -> bool:
        """Whether the decoder leaves out one space at the start of a text."""
        spaced = next((token for token, text in enumerate(self.texts) if text[:1] == b" " and len(text) > 1), None)
        return spaced is not None and not self.tokenizer.decode([spaced]).startswith(" ")

    @cached_property
    def canonical(self) -> bool:
        """Whether encoding any piece of text gives the tokens that write exactly it."""
        return all(self.written(self.encode(probe)) == probe.encode() for probe in _PROBES)

    def pieces(self, text: bytes) -> list[int]:
        """Tokens that write exactly the text, as the tokenizer would where it can, else the longest first.

        Ends where no token goes on: what is left cannot be written in this vocabulary.
        """
        tokens = self.encode(text.decode(errors="replace"))
        if self.written(tokens) == text:
            return list(tokens)
        found: list[int] = []
        at = 0
        while (token := self._longest(text, at)) is not None:
            found.append(token)
            at += len(self.texts[token])
        return found

    def _longest(self, text: bytes, at: int) -> int | None:
        """The token with the most bytes that stand at a place of a text."""
        ends = range(min(len(text), at + self._most_bytes), at, -1)
        return next((token for end in ends if (token := self._by_text.get(text[at:end])) is not None), None)

    @cached_property
    def _by_text(self) -> dict[bytes, int]:
        return {text: token for token, text in reversed(list(enumerate(self.texts))) if text}

    @cached_property
    def _most_bytes(self) -> int:
        return max(map(len, self._by_text), default=0)

    def written(self, tokens: Iterable[int]) -> bytes:
        """The bytes that tokens write."""
        return b"".join(self.texts[token] for token in tokens if token < len(self.texts))

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a piece of text; nothing in it is a control token."""
        return self.tokenizer.encode_text(text, allow_special=False)

    def _check_joined(self, texts: list[bytes]) -> None:
        """Refuse decoders that write a token in another way beside others (WordPiece, CTC)."""
        bytes_only = self.tokenizer.byte_tokens
        once = [token for token, text in enumerate(texts) if text and token not in bytes_only][:_CHECKED]
        some = [token for token in once for _ in range(2)]  # some decoders read a token that follows itself as one
        joined = b"".join(texts[token] for token in some)
        decoded = self.tokenizer.decode(some).encode()
        if decoded not in (joined, joined.removeprefix(b" ")):
            raise OptionError(
                "answers cannot be constrained with this tokenizer: its tokens write different text beside others",
                hint="byte-level and sentencepiece-like tokenizers can be used",
            )

"""What each token of a vocabulary writes, as bytes, whatever the kind of tokenizer; found out from its own decoder."""

from __future__ import annotations

from typing import Final

from genai_pipeline.preprocess.tokenizer import Tokenizer

_UNKNOWN: Final = "\ufffd"


class TokenBytes:
    """Bytes by id, control tokens as their text; looked up once each. Threads may share it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        table = tokenizer.byte_table
        self._table = None if table is None else table.showing(tokenizer.special_ids)
        self._decoded = None if self._table is not None else DecodedBytes(tokenizer)
        self._known: dict[int, bytes] = {}

    def __getitem__(self, token: int) -> bytes:
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._bytes(token)
        return known

    def _bytes(self, token: int) -> bytes:
        if self._table is not None:
            return self._table[token]
        if token in self._tokenizer.special_ids:
            return (self._tokenizer.id_to_token(token) or "").encode()
        assert self._decoded is not None
        return self._decoded[token]


class DecodedBytes:
    """Bytes of tokens by decoding each after a token that is known; none for tokens that never show."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._bytes = self._byte_values()
        self._before = next(
            (token for token in range(tokenizer.highest_id + 1) if self._stands_alone(token)),
            None,
        )

    def __getitem__(self, token: int) -> bytes:
        if self._tokenizer.is_skipped(token):
            return b""
        if token in self._bytes:
            return bytes([self._bytes[token]])
        before = [] if self._before is None else [self._before]
        start = self._tokenizer.decode(before)
        text = self._tokenizer.decode([*before, token])
        own = text[len(start) :] if text.startswith(start) else ""
        return b"" if _UNKNOWN in own else own.encode()

    def _byte_values(self) -> dict[int, int]:
        names = {f"<0x{value:{form}}>": value for value in range(256) for form in ("02X", "02x")}
        own = self._tokenizer.byte_tokens
        found = ((self._tokenizer.token_to_id(name), value) for name, value in names.items())
        return {token: value for token, value in found if token in own}

    def _stands_alone(self, token: int) -> bool:
        """Whether a token is plain ASCII letters in the vocabulary and decoded."""
        text = self._tokenizer.id_to_token(token)
        plain = text is not None and text.isascii() and text.isalpha() and not self._tokenizer.is_skipped(token)
        return plain and self._tokenizer.decode([token]) == text

"""Detokenising for byte-level vocabularies, where every token stands for the same bytes anywhere.

Most vocabularies of today are such (GPT-2 and its heirs). Their decoder joins the bytes of all tokens and reads them as
UTF-8, with U+FFFD for what is none, so that text can be made token by token from a table, without decoding windows.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genai_pipeline.preprocess.tokenizer import Tokenizer

_decoder = codecs.getincrementaldecoder("utf-8")


def byte_characters() -> dict[str, int]:
    """The character that stands for each byte: itself where it is printable Latin-1, else one from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


class ByteTable:
    """Bytes of the tokens of a byte-level vocabulary, looked up once each; ``visible``: control tokens that show."""

    def __init__(self, tokenizer: Tokenizer, visible: frozenset[int] = frozenset()) -> None:
        self._tokenizer = tokenizer
        self._visible = visible
        self._characters = byte_characters()
        self._known: dict[int, bytes] = {}
        self._showing: dict[frozenset[int], ByteTable] = {}

    def showing(self, visible: frozenset[int]) -> ByteTable:
        """The table in which some control tokens show; made once for each set."""
        if not visible:
            return self
        return self._showing.setdefault(visible, ByteTable(self._tokenizer, visible))

    def __getitem__(self, token: int) -> bytes:
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._bytes(token)
        return known

    def _bytes(self, token: int) -> bytes:
        """Bytes of a token; of a text that is not made of byte characters (an added token) its UTF-8."""
        hidden = self._tokenizer.is_skipped(token) and token not in self._visible
        text = None if hidden else self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        if token in self._visible:
            return text.encode()
        mapped = [self._characters.get(character, -1) for character in text]
        return text.encode() if -1 in mapped else bytes(mapped)


class ByteLevelDetokenizer:
    """Turns tokens into text as they come; one per sequence, not thread-safe."""

    def __init__(self, table: ByteTable) -> None:
        self._table = table
        self._decoder = _decoder("replace")

    def push(self, token: int) -> str:
        """The text that ``token`` completes; an unfinished character waits."""
        return self._decoder.decode(self._table[token])

    def flush(self) -> str:
        """The text held back, at the end of the sequence."""
        return self._decoder.decode(b"", final=True)

    def snapshot(self) -> object:
        """The state now, to come back to with ``restore``; costs nothing."""
        return self._decoder.getstate()

    def restore(self, snapshot: object) -> None:
        """Forget every token pushed since ``snapshot``."""
        self._decoder.setstate(snapshot)  # type: ignore[arg-type]

"""Text to token ids and back, with a hard line between control tokens and text. The home of ``tokenizers``.

**Control tokens** are the tokenizer's *special* added tokens, the declared bos, eos and pad tokens, and the tokens of
placeholders. Other added tokens, such as ``</think>`` or ``<tool_call>``, are words that anybody may write.

**Who may write control tokens.** Two tokenizers are loaded from one file. The *parsing* one turns the text of control
tokens into their ids: raw prompts use it. The *plain* one encodes that text like any other (``plain_encoder``).

**BOS.** A prompt that is wanted with BOS gets exactly one: ``with_bos`` puts it in front unless it is there already,
written by the chat template or, in a raw prompt, by the user. Wanted: ``add_bos`` of the metadata; if not given
``add_bos_token`` of tokenizer_config.json; if not given what tokenizer.json's own post-processor does.

**End tokens** are the union of ``eos`` in the metadata, ``eos_token`` in tokenizer_config.json and
special_tokens_map.json, and ``eos_token_id`` in generation_config.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from genai_pipeline.errors import PackageError, PackageInvalidError
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.metadata.paths import check_inside
from genai_pipeline.preprocess import listed_tokens
from genai_pipeline.preprocess.byte_level import ByteTable
from genai_pipeline.preprocess.plain_encoder import (
    EncodedText,
    Piece,
    PlainEncoder,
    alternatives,
    encode_ids,
    encoded,
    stands_alone,
)
from genai_pipeline.preprocess.special_tokens import Vocabulary, below, resolve_tokens, wants_bos
from genai_pipeline.preprocess.token_files import TokenFiles, place_in, read_token_files
from genai_pipeline.problems import Problems, nearest, one_of

if TYPE_CHECKING:
    import tokenizers

LOADABLE = ("tokenizers", *listed_tokens.KINDS)  # kinds of tokenizer files
_LAST_ID = (1 << 32) - 1
SHORT = 256  # tokens up to which decoding is too short to let others run


class Tokenizer:
    """A loaded tokenizer; nothing in it changes after loading, so threads may share it."""

    def __init__(
        self, data: bytes, spec: TokenizerSpec, files: TokenFiles, problems: Problems, reserved: Iterable[str] = ()
    ) -> None:
        """Build from the bytes of a tokenizer.json; raises ValueError when the tokenizers library refuses them.

        ``reserved``: texts of tokens that become control tokens, such as placeholders, if the vocabulary has them.
        """
        self._parsing = _build(data)
        self._files = files
        self._missing = self._parsing.token_to_id(listed_tokens.MISSING)
        ids = frozenset(self._parsing.get_vocab().values()) - {self._missing}
        self.vocab_size = len(ids)
        self.highest_id = max(ids, default=-1)
        self._gaps = frozenset(range(self.highest_id + 1)) - ids
        self._special = resolve_tokens(spec, files, self.vocabulary, problems)
        self._control: dict[str, int] = {}
        self._single_words: frozenset[str] = frozenset()
        self._plain = self._separate(_build(data), reserved)
        self._control_ids = frozenset(self._control.values())
        self._pattern = alternatives(self._control)
        self.add_bos = self._wants_bos(spec, problems)

    @staticmethod
    def load(root: Path, spec: TokenizerSpec) -> Tokenizer:
        """Load a declared tokenizer of a package; raises PackageInvalidError with all that is wrong."""
        problems = Problems()
        loaded = read_tokenizer(root, spec, problems)
        if loaded is None or problems.failed:
            found = problems.sorted()
            raise PackageInvalidError(f"tokenizer '{spec.name}' cannot be used: {found[0].message}", found)
        return loaded

    @property
    def bos_id(self) -> int | None:
        """The token that begins a prompt."""
        return self._special.bos_id

    @property
    def eos_id(self) -> int | None:
        """The first declared end token."""
        return self._special.eos_id

    @property
    def pad_id(self) -> int | None:
        """The token that fills rows."""
        return self._special.pad_id

    @property
    def end_ids(self) -> frozenset[int]:
        """All tokens that end a generation."""
        return self._special.end_ids

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of all control tokens."""
        return self._control_ids

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Texts of all control tokens with their ids."""
        return self._control

    @cached_property
    def byte_table(self) -> ByteTable | None:
        """The bytes of each token where these do not depend on its neighbours, else None."""
        import tokenizers

        return ByteTable(self) if isinstance(self._parsing.decoder, tokenizers.decoders.ByteLevel) else None

    @property
    def byte_tokens(self) -> frozenset[int]:
        """Ids of the byte tokens (``<0x0A>``) of a tokenizer that decodes runs of them together, else empty."""
        if "ByteFallback(" not in repr(self._parsing.decoder):
            return frozenset()
        texts = (f"<0x{byte:{form}}>" for byte in range(256) for form in ("02X", "02x"))
        return frozenset(token for text in texts if (token := self.token_to_id(text)) is not None)

    @property
    def vocabulary(self) -> Vocabulary:
        """Look-ups by which declared tokens are resolved."""
        return Vocabulary(self.token_to_id, self.nearest_token, self.highest_id + 1)

    def token_to_id(self, text: str) -> int | None:
        """The id of a token's exact text, or None."""
        return self._parsing.token_to_id(text)

    def token_id(self, text: str) -> int:
        """The id of a token's exact text; raises PackageError naming the nearest token."""
        found = self.token_to_id(text)
        if found is None:
            raise PackageError(f"the tokenizer has no token {text!r}", hint=self.nearest_token(text))
        return found

    def id_to_token(self, token: int) -> str | None:
        """The text a token has in the vocabulary, or None."""
        return self._parsing.id_to_token(token) if 0 <= token <= _LAST_ID else None

    def nearest_token(self, text: str) -> str:
        """A hint naming the token closest to an unknown text: an added token if one is near; else it lists those."""
        added = [token.content for token in self._parsing.get_added_tokens_decoder().values()]
        # a long vocabulary is searched only among tokens of about the same length
        similar = (token for token in self._parsing.get_vocab() if abs(len(token) - len(text)) <= 2)
        return nearest(text, added) or nearest(text, similar) or (f"added tokens: {one_of(added)}" if added else "")

    def template_texts(self) -> dict[str, str]:
        """``bos_token``, ``eos_token``, ... as chat templates see them; the metadata's declarations come first."""
        declared = {"bos_token": self.bos_id, "eos_token": self.eos_id, "pad_token": self.pad_id}
        texts = {name: self.id_to_token(token) for name, token in declared.items() if token is not None}
        return {**self._files.texts, **{name: text for name, text in texts.items() if text is not None}}

    def encode_text(self, text: str, allow_special: bool) -> tuple[int, ...]:
        """Ids of a text, nothing added; ``allow_special`` gives the texts of control tokens their meaning."""
        if allow_special:
            return self._listed(tuple(encode_ids(self._parsing, text)), text)
        return self.encode_pieces((Piece(text),))

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """Ids of a raw prompt: control tokens have their meaning, one BOS in front if it is wanted."""
        return self.with_bos(self.encode_text(text, allow_special=True))

    def encode_whole(self, text: str, *, complete: bool, most: int | None = None) -> EncodedText:
        """A text in which control tokens have their meaning, cut to ``most`` tokens in all.

        ``complete``: with what the tokenizer's own post-processor puts around every text, e.g. [CLS] and [SEP].
        """
        added = self._parsing.num_special_tokens_to_add(False) if complete else 0
        encoding = encoded(self._parsing, text)
        if most is not None:
            encoding.truncate(max(most - added, 0))
        if complete:
            encoding = self._parsing.post_process(encoding, None, True)
        return EncodedText(self._listed(tuple(encoding.ids), text), tuple(encoding.type_ids), tuple(encoding.offsets))

    def encode_pieces(self, pieces: Iterable[Piece]) -> tuple[int, ...]:
        """Ids of a prompt in which only the control pieces are control tokens."""
        pieces = tuple(pieces)
        return self._listed(self._plain.encode(pieces), "".join(piece.text for piece in pieces if not piece.control))

    def with_bos(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The ids with one BOS in front if it is wanted and not there yet."""
        if self.add_bos and self.bos_id is not None and (not ids or ids[0] != self.bos_id):
            return (self.bos_id, *ids)
        return tuple(ids)

    def control_ids(self, texts: Iterable[str]) -> frozenset[int]:
        """Ids of those of the texts that are control tokens."""
        return frozenset(self._control[text] for text in texts if text in self._control)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ids; ids outside the vocabulary add nothing."""
        if len(ids) > SHORT:  # as a batch, during which other threads run
            (text,) = self._parsing.decode_batch([ids], skip_special_tokens=skip_special)
            return str(text)
        return self._parsing.decode(ids, skip_special_tokens=skip_special)

    def is_skipped(self, token: int) -> bool:
        """Whether a token never shows in decoded text: a control token, or an id outside the vocabulary."""
        return token in self._control_ids or not 0 <= token <= self.highest_id or token in self._gaps

    def split_control(self, text: str) -> Iterator[tuple[int, int]]:
        """Half-open ranges of all places where the text of a control token stands, overlapping ones included."""
        position = 0
        while (found := self._pattern.search(text, position)) is not None:
            if found.group() not in self._single_words or stands_alone(text, found.start(), found.end()):
                yield found.start(), found.end()
            position = found.start() + 1

    def _listed(self, ids: tuple[int, ...], text: str) -> tuple[int, ...]:
        """The ids; raises RequestError where the text has what a list without an unknown token lacks."""
        if self._missing in ids:
            listed_tokens.refuse_missing(text, self.token_to_id)
        return ids

    def _separate(self, plain: tokenizers.Tokenizer, reserved: Iterable[str]) -> PlainEncoder:
        """Settle what the control tokens are, and build the encoder that never parses them.

        Declared tokens that the file has as ordinary added tokens become special ones, reserved ones in any case.
        """
        import tokenizers

        added = self._parsing.get_added_tokens_decoder()
        late = [_special_copy(added[token]) for token in self._special.declared if token in added]
        for text in reserved:
            if (token := self.token_to_id(text)) is not None:
                plainly = tokenizers.AddedToken(text, normalized=False)
                late.append(_special_copy(added.get(token, plainly)))
        for half in (self._parsing, plain):
            half.add_special_tokens(late)
        control = {token.content: token for token in self._parsing.get_added_tokens_decoder().values() if token.special}
        self._control = {text: self.token_id(text) for text in control if text}
        self._single_words = frozenset(text for text, token in control.items() if token.single_word)
        return PlainEncoder(plain, control, self._control, self.highest_id, tokenizers.AddedToken)

    def _wants_bos(self, spec: TokenizerSpec, problems: Problems) -> bool:
        wanted = wants_bos(spec, self.bos_id, self._files, problems)
        if wanted is not None:
            return wanted
        bare, full = (self._parsing.encode("a", add_special_tokens=add).ids for add in (False, True))
        return full[:1] == [self.bos_id] and bare[:1] != [self.bos_id]


def read_tokenizer(
    root: Path, spec: TokenizerSpec, problems: Problems, reserved: Iterable[str] = ()
) -> Tokenizer | None:
    """The declared tokenizer, or None with problems; one that loads with problems is given with them."""
    if spec.kind not in LOADABLE:
        hint = "use kind 'tokenizers', a tokenizer.json"
        problems.error(spec.at, "tokenizer.kind", f"tokenizer kind '{spec.kind}' cannot be loaded yet", hint)
        return None
    at = place_in(spec.at, spec.file)
    files = read_token_files(root, spec.file, spec.at, problems)
    file = check_inside(root, spec.file, below(spec.at, "file"), problems)
    if file is None:
        return None
    try:
        return Tokenizer(listed_tokens.tokenizer_json(file.read_bytes(), spec), spec, files, problems, reserved)
    except (OSError, ValueError) as error:
        reason = str(error).removeprefix("Cannot instantiate Tokenizer from buffer: ")
        hint = "it must be a whole tokenizer.json of the tokenizers library" if spec.kind == "tokenizers" else ""
        problems.error(at, "tokenizer.file", f"{spec.file} is no usable tokenizer: {reason}", hint)
        return None


def _build(data: bytes) -> tokenizers.Tokenizer:
    """A tokenizer from a tokenizer.json, without the truncation and padding it may declare: prompts stay whole."""
    import tokenizers

    built: tokenizers.Tokenizer = tokenizers.Tokenizer.from_buffer(data)
    built.no_truncation()
    built.no_padding()
    return built


def _special_copy(token: tokenizers.AddedToken) -> tokenizers.AddedToken:
    import tokenizers

    return tokenizers.AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=True,
    )

"""Text to token ids and back, with a hard line between control tokens and text. The home of ``tokenizers``.

**Control tokens** are the tokenizer's *special* added tokens, and the declared bos, eos and pad tokens among its added
tokens. Other added tokens, such as ``</think>`` or ``<tool_call>``, are vocabulary that anybody may write.

**Who may write control tokens.** Two tokenizers are loaded from one file. The *parsing* one turns the text of control
tokens into their ids: raw prompts use it. The *plain* one encodes that text like any other. To put a control token
into text for the plain one, every control token has a *twin* there: an added token with a text made up at load time
that nobody outside can know, and with the same stripping rules. The whole prompt is encoded in one call, so that
rules about neighbours and about the start of the text see the same prompt as the parsing one would.

**BOS.** A prompt that is wanted with BOS gets exactly one: ``with_bos`` puts it in front unless it is there already,
written by the chat template or, in a raw prompt, by the user. Wanted: ``add_bos`` of the metadata; if not given
``add_bos_token`` of tokenizer_config.json; if not given what tokenizer.json's own post-processor does.

**End tokens** are the union of ``eos`` in the metadata, ``eos_token`` in tokenizer_config.json and
special_tokens_map.json, and ``eos_token_id`` in generation_config.json.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genai_pipeline.errors import PackageError, PackageInvalidError, RequestError
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.preprocess.special_tokens import Vocabulary, resolve_tokens
from genai_pipeline.preprocess.token_files import TokenFiles, read_token_files, relative_name
from genai_pipeline.problems import Location, Problems, nearest

if TYPE_CHECKING:
    import tokenizers

_TWIN_MARK = "\U0010fffd"
_BREAK = "/."


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt: one control token, or text in which control tokens have no meaning."""

    text: str
    control: bool = False


class Tokenizer:
    """A loaded tokenizer; nothing in it changes after loading, so threads may share it."""

    def __init__(self, data: bytes, spec: TokenizerSpec, files: TokenFiles, problems: Problems) -> None:
        """Build from the bytes of a tokenizer.json; raises ValueError when the tokenizers library refuses them."""
        self._parsing = _build(data)
        self.files = files
        self.vocab_size = self._parsing.get_vocab_size(with_added_tokens=True)
        self._special = resolve_tokens(spec, files, self.vocabulary, problems)
        self._plain = _build(data)
        self._control = self._mark_control()
        self._control_ids = frozenset(self._control.values())
        # What characters outside the vocabulary become may well be a control token (<unk>): no sign of forgery.
        self._forgeable = self._control_ids.difference(self._plain.encode(_TWIN_MARK, add_special_tokens=False).ids)
        self._nonce = _TWIN_MARK + secrets.token_hex(8)
        self._twins, self._twin_ids = self._add_twins()
        self._plain.encode_special_tokens = True
        self._pattern = _alternatives(self._control)
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
    def vocabulary(self) -> Vocabulary:
        """Look-ups by which declared tokens are resolved."""
        return Vocabulary(self.token_to_id, self.nearest_token, self.vocab_size)

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Texts of all control tokens with their ids."""
        return self._control

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
        return self._parsing.id_to_token(token) if 0 <= token < 1 << 32 else None

    def nearest_token(self, text: str) -> str:
        """A hint naming the token closest to an unknown text: an added token if one is near."""
        added = [token.content for token in self._parsing.get_added_tokens_decoder().values()]
        length = len(text)  # a long vocabulary is only searched among tokens of about the same length
        return nearest(text, added) or nearest(
            text, (token for token in self._parsing.get_vocab() if abs(len(token) - length) <= 2)
        )

    def template_texts(self) -> dict[str, str]:
        """``bos_token``, ``eos_token``, ... as chat templates see them; the metadata's declarations come first."""
        declared = {"bos_token": self.bos_id, "eos_token": self.eos_id, "pad_token": self.pad_id}
        texts = {
            name: text for name, token in declared.items() if token is not None and (text := self.id_to_token(token))
        }
        return {**self.files.texts, **texts}

    def encode_text(self, text: str, allow_special: bool) -> tuple[int, ...]:
        """Ids of a text, nothing added; ``allow_special`` gives the texts of control tokens their meaning."""
        if allow_special:
            return tuple(self._parsing.encode(_encodable(text), add_special_tokens=False).ids)
        return self.encode_pieces((Piece(text),))

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """Ids of a raw prompt: control tokens have their meaning, one BOS in front if it is wanted."""
        return self.with_bos(self.encode_text(text, allow_special=True))

    def encode_pieces(self, pieces: Iterable[Piece]) -> tuple[int, ...]:
        """Ids of a prompt in which only the control pieces are control tokens."""
        pieces = tuple(pieces)
        ids = self._encode_plain(pieces)
        forged = self._forged(ids, pieces)
        if forged:
            # Some vocabularies reach a control token from its characters; cut inside each such text.
            ids = self._encode_plain(self._broken(pieces, forged))
            if self._forged(ids, pieces):
                raise RequestError("the text holds a control token that this tokenizer cannot encode as text")
        return tuple(mapped for token in ids if (mapped := self._twin_ids.get(token, token)) >= 0)

    def with_bos(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The ids with one BOS in front if it is wanted and not there yet."""
        if self.add_bos and self.bos_id is not None and (not ids or ids[0] != self.bos_id):
            return (self.bos_id, *ids)
        return tuple(ids)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ids; ids outside the vocabulary add nothing."""
        return self._parsing.decode([token for token in ids if token >= 0], skip_special_tokens=skip_special)

    def is_skipped(self, token: int) -> bool:
        """Whether a token never shows in decoded text: a control token, or an id outside the vocabulary."""
        return token in self._control_ids or self.id_to_token(token) is None

    @property
    def byte_tokens(self) -> frozenset[int]:
        """Ids of the byte tokens (``<0x0A>``) of a tokenizer that decodes runs of them together, else empty."""
        if "ByteFallback(" not in repr(self._parsing.decoder):
            return frozenset()
        texts = (f"<0x{byte:{form}}>" for byte in range(256) for form in ("02X", "02x"))
        return frozenset(token for text in texts if (token := self.token_to_id(text)) is not None)

    def split_control(self, text: str) -> Iterator[tuple[int, int]]:
        """Half-open ranges of all places where the text of a control token stands, overlapping ones included."""
        position = 0
        while (found := self._pattern.search(text, position)) is not None:
            if self._stands_alone(found.group(), text, found.start(), found.end()):
                yield found.start(), found.end()
            position = found.start() + 1

    def _stands_alone(self, token: str, text: str, start: int, end: int) -> bool:
        if token not in self._single_words:  # matched wherever it stands
            return True
        return not re.search(r"\w\Z", text[:start]) and not re.match(r"\w", text[end:])

    def _encode_plain(self, pieces: Iterable[Piece]) -> list[int]:
        text = "".join(self._twins[piece.text] if piece.control else piece.text for piece in pieces)
        return self._plain.encode(_encodable(text), add_special_tokens=False).ids

    def _forged(self, ids: Sequence[int], pieces: Iterable[Piece]) -> frozenset[str]:
        """Control tokens that came out of ordinary text."""
        found = self._forgeable.intersection(ids)
        if not found:
            return frozenset()
        texts = {text for text, token in self._control.items() if token in found}
        return frozenset(text for text in texts if any(text in piece.text for piece in pieces if not piece.control))

    def _broken(self, pieces: Iterable[Piece], forged: Iterable[str]) -> Iterator[Piece]:
        pattern = _alternatives(forged)
        for piece in pieces:
            text = piece.text if piece.control else pattern.sub(self._cut, piece.text)
            yield Piece(text, piece.control)

    def _cut(self, found: re.Match[str]) -> str:
        return found.group()[0] + self._nonce + _BREAK + found.group()[1:]

    def _mark_control(self) -> dict[str, int]:
        """Make declared tokens special in both tokenizers where they are added tokens; all control tokens by text."""
        added = self._parsing.get_added_tokens_decoder()
        late = [
            _special_copy(added[token])
            for token in self._special.declared
            if token in added and not added[token].special
        ]
        for half in (self._parsing, self._plain):
            half.add_special_tokens(late)
        found = self._parsing.get_added_tokens_decoder()
        self._single_words = frozenset(token.content for token in found.values() if token.single_word)
        return {token.content: number for number, token in found.items() if token.special and token.content}

    def _add_twins(self) -> tuple[dict[str, str], dict[int, int]]:
        """Add the twin of each control token to the plain tokenizer: texts, and twin ids with the ids they stand for.

        The text that ``_cut`` puts in has a twin id too, which stands for -1: nothing.
        """
        import tokenizers

        originals = self._parsing.get_added_tokens_decoder()
        twins = {text: f"{self._nonce}{index}." for index, text in enumerate(self._control)}
        tokens = [tokenizers.AddedToken(self._nonce + _BREAK, normalized=False)]
        for text, number in self._control.items():
            like = originals[number]
            tokens.append(
                tokenizers.AddedToken(
                    twins[text], lstrip=like.lstrip, rstrip=like.rstrip, single_word=False, normalized=False
                )
            )
        self._plain.add_tokens(tokens)
        ids = {self._plain_id(twins[text]): number for text, number in self._control.items()}
        return twins, {self._plain_id(self._nonce + _BREAK): -1, **ids}

    def _plain_id(self, text: str) -> int:
        found = self._plain.token_to_id(text)
        assert found is not None
        return found

    def _wants_bos(self, spec: TokenizerSpec, problems: Problems) -> bool:
        if self.bos_id is None:
            if spec.add_bos:
                problems.error(spec.at, "bos_missing", "add_bos is true, but no bos token is declared", "declare 'bos'")
            return False
        if spec.add_bos is not None:
            return spec.add_bos
        if self.files.add_bos is not None:
            return self.files.add_bos
        bare, full = (self._parsing.encode("a", add_special_tokens=add).ids for add in (False, True))
        return full[:1] == [self.bos_id] and bare[:1] != [self.bos_id]


def read_tokenizer(root: Path, spec: TokenizerSpec, problems: Problems) -> Tokenizer | None:
    """The declared tokenizer, or None with problems; one that loads with problems is given with them."""
    file = root / spec.file
    at = Location(relative_name(root, file))
    if spec.kind != "tokenizers":
        problems.error(
            spec.at, "tokenizer_kind", f"tokenizer kind '{spec.kind}' cannot be loaded yet", "use 'tokenizers'"
        )
        return None
    files = read_token_files(root, file.parent, problems)
    try:
        return Tokenizer(file.read_bytes(), spec, files, problems)
    except OSError as error:
        hint = "list the tokenizer's file under tokenizer.file"
        problems.error(spec.at, "tokenizer_missing", f"{spec.file} cannot be read: {error.strerror}", hint)
    except ValueError as error:
        reason = str(error).removeprefix("Cannot instantiate Tokenizer from buffer: ")
        hint = "it must be a tokenizer.json of the tokenizers library, whole"
        problems.error(at, "tokenizer_file", f"{at.file} is no usable tokenizer: {reason}", hint)
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


def _alternatives(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern for any of the texts, longest first; of no text it matches nothing."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _encodable(text: str) -> str:
    """The text, if it is valid Unicode; halves of surrogate pairs are refused."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"the text is not valid Unicode at character {error.start}: half of a surrogate pair", param="prompt"
        ) from error
    return str.__str__(text)

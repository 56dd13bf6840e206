"""Which ids are bos, eos, pad and end tokens: resolved from texts or ids in the metadata and beside the tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.preprocess.token_files import TokenFiles
from genai_pipeline.problems import Location, Problems


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What resolving needs to know of a tokenizer."""

    id_of: Callable[[str], int | None]
    suggest: Callable[[str], str]  # a hint naming the nearest token
    size: int

    def resolve(self, field: str, token: str | int, at: Location, problems: Problems) -> int | None:
        """The id of a token declared by text or id; a problem naming the field when there is no such token."""
        if isinstance(token, int):
            if 0 <= token < self.size:
                return token
            problems.error(
                at,
                "tokenizer.token_range",
                f"{field}: id {token} is outside the vocabulary",
                f"ids are 0 to {self.size - 1}",
            )
            return None
        found = self.id_of(token)
        if found is None:
            problems.error(
                at, "tokenizer.token_unknown", f"{field}: the tokenizer has no token {token!r}", self.suggest(token)
            )
        return found


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids with a declared meaning; ``end_ids`` is the union of every declaration, ``eos_id`` the first of them."""

    bos_id: int | None
    eos_id: int | None
    pad_id: int | None
    unk_id: int | None
    end_ids: frozenset[int]

    @property
    def declared(self) -> frozenset[int]:
        """All of them but the unknown token, which ordinary text may well become."""
        return self.end_ids | {token for token in (self.bos_id, self.pad_id) if token is not None}


def resolve_tokens(spec: TokenizerSpec, files: TokenFiles, vocabulary: Vocabulary, problems: Problems) -> SpecialTokens:
    """Ids of all declared tokens; a token of the metadata that the vocabulary lacks is a problem.

    A token that only a file beside the tokenizer names and the vocabulary lacks is left out: published files often
    list such.
    """

    def one(field: str, value: str | int | None) -> int | None:
        if value is not None:
            return vocabulary.resolve(field, value, below(spec.at, field), problems)
        text = files.texts.get(f"{field}_token")
        return None if text is None else vocabulary.id_of(text)

    declared = [
        vocabulary.resolve("eos", token, below(spec.at, f"eos[{i}]"), problems) for i, token in enumerate(spec.eos)
    ]
    ends = dict.fromkeys(token for token in (*declared, *_beside(files, vocabulary)) if token is not None)
    return SpecialTokens(
        bos_id=one("bos", spec.bos),
        eos_id=next(iter(ends), None),
        pad_id=one("pad", spec.pad),
        unk_id=one("unk", None),
        end_ids=frozenset(ends),
    )


def wants_bos(spec: TokenizerSpec, bos: int | None, files: TokenFiles, problems: Problems) -> bool | None:
    """Whether a prompt is wanted with BOS, by what is declared; None where only the tokenizer itself can tell."""
    if bos is not None:
        return files.add_bos if spec.add_bos is None else spec.add_bos
    if spec.add_bos and spec.bos is None:
        message, hint = "add_bos is true, but no bos token is declared", "declare 'bos'"
        problems.error(spec.at, "tokenizer.bos_missing", message, hint)
    return False


def _beside(files: TokenFiles, vocabulary: Vocabulary) -> Iterator[int | None]:
    texts: Iterable[str] = files.end_texts
    yield from (vocabulary.id_of(text) for text in texts)
    yield from (token for token in files.end_ids if 0 <= token < vocabulary.size)


def below(at: Location, field: str) -> Location:
    """The place of a field of a construct that only knows its own place."""
    return replace(at, path=f"{at.path}.{field}")

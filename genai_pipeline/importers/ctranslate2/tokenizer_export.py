"""The tokenizer of a Whisper model: its ``tokenizer.json``, with the timestamps that only the vocabulary lists."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.ctranslate2.config import WhisperConfig
from genai_pipeline.problems import one_of

END, START, NO_TIMES = "<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"
FIRST_TIME, LATEST_START = "<|0.00|>", "<|1.00|>"
TASKS = ("<|transcribe|>", "<|translate|>")
_MULTILINGUAL = 51865  # tokens that multilingual models have at least
_LISTS = ("vocabulary.json", "vocabulary.txt")  # of newer and older converters: every token in the order of ids


@dataclass(frozen=True, slots=True)
class WhisperTokenizer:
    """``definition`` is the content of tokenizer.json; ``tokens`` are all texts in the order of their ids."""

    definition: Mapping[str, Any]
    tokens: Sequence[str]
    suppressed: tuple[str, ...]  # what the model's configuration never chooses, by text
    not_first: tuple[str, ...]  # what it does not choose first

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that a multilingual model can hear, e.g. "<|en|>"; empty for one that knows English only.

        Those list the tokens of languages, too; only the size of the vocabulary tells them apart.
        """
        if len(self.tokens) < _MULTILINGUAL:
            return ()
        first, last = self.tokens.index(START) + 1, min(self.tokens.index(task) for task in TASKS)
        return tuple(self.tokens[first:last])


def find_file(files: Mapping[str, Path], *names: str) -> Path:
    """The first of ``names`` that is among a model's files. Raises ImportModelError."""
    found = next((files[name] for name in names if name in files), None)
    if found is None:
        raise ImportModelError(
            f"the model has no {' or '.join(names)}; its files are: {one_of(files) or '(none)'}",
            hint="give a folder that CTranslate2's converter made, with tokenizer.json of the original model in it",
        )
    return found


def read_tokenizer(files: Mapping[str, Path], config: WhisperConfig) -> WhisperTokenizer:
    """The tokenizer among a model's files. Raises ImportModelError when they do not fit together or the model."""
    listed, defined = find_file(files, *_LISTS), find_file(files, "tokenizer.json")
    tokens = _listed(listed)
    if len(tokens) != config.vocabulary:
        raise ImportModelError(f"{listed}: lists {len(tokens)} tokens, the model has rows for {config.vocabulary}")
    for text in (END, START, NO_TIMES, FIRST_TIME, *TASKS):
        if text not in tokens:
            raise ImportModelError(f"{listed}: has no token {text}", hint="it is no Whisper model")
    definition = _object(defined)
    known = _known(definition, defined)
    wrong = next((index for index, text in known.items() if index >= len(tokens) or tokens[index] != text), None)
    if wrong is not None:
        raise ImportModelError(f"{defined}: differs from {listed.name} in token {wrong}")
    missing = [index for index in range(len(tokens)) if index not in known]
    added = [*definition["added_tokens"], *(_added(index, tokens[index]) for index in missing)]
    # The loop's prompt begins with the tokens that a post-processor would put in front of every text.
    completed = {**definition, "added_tokens": added, "post_processor": None}
    path = find_file(files, "config.json")
    never = (*_named(path, "suppress_ids", tokens), NO_TIMES)  # and what only prompts hold
    not_first = _named(path, "suppress_ids_begin", tokens)
    return WhisperTokenizer(completed, tokens, tuple(dict.fromkeys(never)), not_first)


def _listed(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ImportModelError(f"{path}: cannot be read: {error}", hint="it lists every token") from error
    tokens = _json(path, text) if path.suffix == ".json" else text.removesuffix("\n").split("\n")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ImportModelError(f"{path}: is no list of texts")
    return tokens


def _known(definition: Mapping[str, Any], path: Path) -> dict[int, str]:
    """Texts by id that tokenizer.json has. Raises ImportModelError where it is built otherwise."""
    try:
        vocabulary = {index: text for text, index in definition["model"]["vocab"].items()}
        return {**vocabulary, **{token["id"]: token["content"] for token in definition["added_tokens"]}}
    except (AttributeError, KeyError, TypeError) as error:
        raise ImportModelError(f"{path}: is no tokenizer with a vocabulary") from error


def _added(index: int, text: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": index, "content": text, **flags, "special": True}


def _named(path: Path, key: str, tokens: Sequence[str]) -> tuple[str, ...]:
    """Texts of a list of ids in the configuration."""
    ids = _object(path).get(key, [])
    if not isinstance(ids, list) or not all(isinstance(i, int) and 0 <= i < len(tokens) for i in ids):
        raise ImportModelError(f"{path}: {key} is no list of token ids")
    return tuple(dict.fromkeys(tokens[index] for index in ids))


def _object(path: Path) -> dict[str, Any]:
    try:
        value = _json(path, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ImportModelError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ImportModelError(f"{path}: is no JSON object")
    return value


def _json(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ImportModelError(f"{path}: is not JSON: {error}") from error

"""From a text to what a voice speaks: words, their phonemes, the ids of those."""

from __future__ import annotations

import re
import unicodedata
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from genai_pipeline.errors import PackageError, RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.spelling import english
from genai_pipeline.problems import nearest

Values = Mapping[str, Any]
_APOSTROPHES: Final = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc\u00b4`", "'"))  # what is written for one


def spell_out(inputs: Values, params: Values, context: OpContext) -> Values:
    """Numbers and abbreviations of a text as words."""
    assert params["language"] == "en"
    return {RESULT: english(inputs["text"])}


def words(inputs: Values, params: Values, context: OpContext) -> Values:
    """The words of a text with the marks behind each; marks in front of the first word are dropped."""
    text = _plain(inputs["text"], params["letters"])
    found = list(_word_pattern(params["letters"]).finditer(text))
    if not found:
        hint = f"a text needs some of the letters {params['letters']}"
        raise RequestError("the text has no word that can be spoken", param="prompt", hint=hint)
    gaps = zip(found, [*(word.start() for word in found[1:]), len(text)], strict=True)
    marks = ["".join(c for c in text[word.end() : stop] if c in params["marks"]) for word, stop in gaps]
    names, known = [word.group() for word in found], _dictionary(inputs, "known", context)
    return {"words": names, "marks": marks, "unknown": [word for word in dict.fromkeys(names) if word not in known]}


def _plain(text: str, letters: str) -> str:
    """The text in lower case, accents dropped where a letter has none."""
    lower = text.translate(_APOSTROPHES).lower()
    return "".join(c if c in letters else _without_accents(c) for c in lower)


def _without_accents(character: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", character) if unicodedata.category(c) != "Mn")


def _word_pattern(letters: str) -> re.Pattern[str]:
    """Runs of letters; apostrophes belong to a word only inside of it."""
    any_letter, ends = re.escape(letters), re.escape(letters.replace("'", ""))
    return re.compile(f"[{ends}](?:[{any_letter}]*[{ends}])?") if ends else re.compile("(?!)")


@dataclass(frozen=True, slots=True)
class _Unit:
    """A word's symbols with the marks behind it."""

    symbols: tuple[str, ...]
    marks: str


def phonemes(inputs: Values, params: Values, context: OpContext) -> Values:
    """The symbols of each sentence: phonemes of its words, marks, and the space between words."""
    marks = inputs["marks"]
    spoken = _pronunciations(inputs, context)
    lacking = [word for word in inputs["words"] if word not in spoken]
    if lacking:
        raise RequestError(f"stage '{context.stage}' has no phonemes of the word '{lacking[0]}'")
    units = [_Unit((*spoken[word].split(), *mark), mark) for word, mark in zip(inputs["words"], marks, strict=True)]
    sentences = list(_sentences(units, params["ends"], params["longest"]))
    last = np.arange(len(sentences)) == len(sentences) - 1
    return {"sentences": [_joined(sentence, params["space"]) for sentence in sentences], "last": last}


def _pronunciations(inputs: Values, context: OpContext) -> Mapping[str, str]:
    """Phonemes by word: what was spoken for this text, and the dictionary."""
    unknown, spoken = inputs["unknown"] or (), inputs["spoken"] or ()
    if len(unknown) != len(spoken):
        raise RequestError(f"stage '{context.stage}' has {len(spoken)} pronunciations for {len(unknown)} words")
    return ChainMap(dict(zip(unknown, spoken, strict=True)), _dictionary(inputs, "known", context))


def _sentences(units: Iterable[_Unit], ends: str, longest: int) -> Iterator[list[_Unit]]:
    """Words up to the mark that ends a sentence; what is too long ends at its last mark before, or at a word."""
    sentence: list[_Unit] = []
    for unit in units:
        if sentence and sum(len(other.symbols) + 1 for other in sentence) + len(unit.symbols) > longest:
            cut = next((i for i in range(len(sentence), 0, -1) if sentence[i - 1].marks), len(sentence))
            yield sentence[:cut]
            sentence = sentence[cut:]
        sentence.append(unit)
        if any(mark in ends for mark in unit.marks):
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _joined(sentence: Iterable[_Unit], space: str) -> list[str]:
    symbols: list[str] = []
    for unit in sentence:
        symbols += [space, *unit.symbols] if symbols and unit.symbols else unit.symbols
    return symbols


def map_ids(inputs: Values, params: Values, context: OpContext) -> Values:
    """The ids of symbols; ``begin`` and ``end`` around them, ``between`` after each of their ids but the last."""
    table = _dictionary(inputs, "map", context)
    ids: list[int] = []
    for symbol in (*params["begin"], *inputs["symbols"], *params["end"]):
        found = _ids(table, symbol, context)
        ids += found
    if params["between"]:
        (pad,) = _ids(table, params["between"], context)
        ids = [number for each in ids for number in (each, pad)][:-1]
    return {RESULT: np.array([ids], np.int64)}


def _ids(table: Mapping[str, Any], symbol: str, context: OpContext) -> list[int]:
    if symbol not in table:
        hint = nearest(symbol, table)
        raise PackageError(f"the map of stage '{context.stage}' has no ids for the symbol '{symbol}'", hint=hint)
    found = table[symbol]
    return list(found) if isinstance(found, list | tuple) else [found]


def _dictionary(inputs: Values, name: str, context: OpContext) -> dict[str, Any]:
    value = inputs[name]
    if value is None:
        return {}
    if not isinstance(value, dict):
        hint = "bind it to data that is a JSON object"
        raise PackageError(f"'{name}' of stage '{context.stage}' takes a map, not {type(value).__name__}", hint=hint)
    return value

"""Compiles constraints for a vocabulary, each once: a bounded cache that threads share."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from threading import Lock
from typing import Any, Final

from genai_pipeline.constraints.llg import GrammarVocabulary
from genai_pipeline.constraints.rules import whole_grammar
from genai_pipeline.constraints.schema_tree import escaped
from genai_pipeline.constraints.spec import ConstraintSpec
from genai_pipeline.constraints.state import Constraint
from genai_pipeline.constraints.token_table import TokenTable
from genai_pipeline.errors import ConstraintError, ConstraintRunError
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import SHOWN

CACHE_SIZE: Final = 64

# What the library says against a schema, and the keyword it is about.
_COMPLAINTS: Final[Mapping[str, str]] = {
    r"patternPropert": "patternProperties",
    r"(integer|float) range|does not contain|minimum|maximum": "minimum",
    r"m(in|ax)Properties": "minProperties",
    r"circular references": "$ref",
    r"multipleOf": "multipleOf",
    r"required": "required",
}


class ConstraintCompiler:
    """Makes constraints for one tokenizer and one width of logits; any thread may call it."""

    def __init__(self, tokenizer: Tokenizer, vocabulary_size: int, end_ids: frozenset[int] = frozenset()) -> None:
        """``vocabulary_size``: width of the logits; ``end_ids``: what ends a sequence that names nothing else."""
        self._table = TokenTable(tokenizer, vocabulary_size)
        self._end_ids = end_ids
        self._control = tokenizer.control_tokens
        self._vocabulary: GrammarVocabulary | None = None
        self._cache: OrderedDict[ConstraintSpec, Constraint] = OrderedDict()
        self._lock = Lock()

    def compile(self, spec: ConstraintSpec) -> Constraint:
        """The constraint of a spec. Raises ConstraintError, OptionError or ExtraMissingError.

        One thread compiles at a time, so that nothing is compiled twice.
        """
        with self._lock:
            found = self._cache.get(spec)
            if found is None:
                found = self._cache[spec] = self._compile(spec)
                if len(self._cache) > CACHE_SIZE:
                    self._cache.popitem(last=False)
            self._cache.move_to_end(spec)
            return found

    def _compile(self, spec: ConstraintSpec) -> Constraint:
        vocabulary = self._ready_vocabulary()
        if spec.kind == "grammar":
            self._check_grammar(spec, vocabulary)
        text = whole_grammar(spec, self._control.get, drops_space=self._table.drops_space)
        matcher, fault = vocabulary.matcher(text)
        if matcher is None:
            raise _refused(spec, fault)
        try:
            empty = matcher.copy().accepts_end()
            matcher.copy().mask()
        except ConstraintRunError as error:
            raise ConstraintError(f"{spec.param} cannot be used: {error.message}", param=spec.param) from error
        if empty and spec.kind == "json":
            raise ConstraintError(f"{spec.param}: no value fits the schema", param=spec.param)
        return Constraint(spec, vocabulary, matcher, self._end_ids)

    def _ready_vocabulary(self) -> GrammarVocabulary:
        if self._vocabulary is None:
            self._vocabulary = GrammarVocabulary(self._table)
        return self._vocabulary

    def _check_grammar(self, spec: ConstraintSpec, vocabulary: GrammarVocabulary) -> None:
        """Refuse a user's grammar by its own lines, before it is put into another."""
        _, fault = vocabulary.matcher(spec.source)
        if fault:
            raise _refused(spec, fault)


def _refused(spec: ConstraintSpec, fault: str) -> ConstraintError:
    """The library's complaint as an error, with the keyword it is about if it is about one."""
    if spec.kind != "json":
        reason = "\n".join(line if len(line) <= SHOWN else f"{line[:SHOWN]}..." for line in fault.strip().split("\n"))
        return ConstraintError(f"{spec.param} cannot be used: {reason}", param=spec.param)
    reason = fault.split("\n", 1)[0].rpartition("failed to compile JSON schema: ")[2]
    keyword = next((name for pattern, name in _COMPLAINTS.items() if re.search(pattern, reason)), "")
    places = list(_places(json.loads(spec.source), keyword)) if keyword else []
    pointer = places[0] if len(places) == 1 and not places[0].startswith("/$defs/") else ""
    named = (
        f"the schema keyword '{keyword}' at {pointer} cannot be enforced" if pointer else "the schema cannot be used"
    )
    return ConstraintError(f"{named}: {reason}", param=spec.param, keyword=keyword, pointer=pointer)


def _places(value: Any, keyword: str, pointer: str = "") -> Iterator[str]:
    """Pointers of all members with a name in a JSON value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in members:
        at = f"{pointer}/{escaped(name)}"
        if name == keyword:
            yield at
        yield from _places(item, keyword, at)

"""What a request may ask of the form of its answer, read from its options and checked before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from genai_pipeline.constraints.lark import ready_grammar
from genai_pipeline.constraints.patterns import PatternError, full_match
from genai_pipeline.constraints.schemas import ready_schema
from genai_pipeline.errors import ConstraintError, OptionError, RequestError
from genai_pipeline.option_values import boolean
from genai_pipeline.preprocess.plain_encoder import encodable
from genai_pipeline.problems import nearest, one_of, shown

Kind = Literal["json", "regex", "grammar", "choices"]

CONSTRAINT_OPTIONS: Final = ("response_format", "regex", "grammar", "choices")
FORMATS: Final = ("text", "json_object", "json_schema")
MAX_CHOICES: Final = 10_000
MAX_CHARACTERS: Final = 262_144  # of all choices together
MAX_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Preamble:
    """Reasoning before the answer: free text up to and including ``close``.

    Optional text begins with ``open``; mandatory text has begun already, in the prompt. After the close tag up to
    ``line_ends`` line ends may stand, which belong to neither part.
    """

    open: str
    close: str
    mandatory: bool
    line_ends: int = 2


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """The form of an answer; ``source`` is checked and canonical, so that equal demands are equal specs.

    ``source`` is JSON for the kinds json (a ready schema) and choices (a list), a ready pattern for regex, Lark text
    with a rule ``start`` for grammar.
    """

    kind: Kind
    source: str
    param: str  # the option that asked for it, named in errors
    preamble: Preamble | None = None

    @property
    def mode(self) -> str:
        """The kind as metadata name it: json_object, json_schema, regex, grammar or choices."""
        if self.kind != "json":
            return self.kind
        return "json_object" if self.source == ready_schema({"type": "object"}, self.param) else "json_schema"

    def after(self, preamble: Preamble | None) -> ConstraintSpec:
        """The same answer after reasoning."""
        return replace(self, preamble=preamble)


def read_constraint(options: Mapping[str, Any]) -> ConstraintSpec | None:
    """The constraint that the options of a request name, None when they name none.

    Reads ``response_format``, ``regex``, ``grammar`` and ``choices``, of which one may be given (None is not given).
    Raises ConstraintError or OptionError, always before a token is made.
    """
    specs = [
        spec
        for name, read in _READERS.items()
        if options.get(name) is not None and (spec := read(name, options[name])) is not None
    ]
    if len(specs) > 1:
        names = " and ".join(spec.param for spec in specs)
        raise OptionError(f"{names} exclude each other", param=specs[1].param, hint="one option says what to answer")
    return specs[0] if specs else None


def grammar_spec(text: str, param: str) -> ConstraintSpec:
    """A constraint of Lark text with a rule ``start``, also one put together from rules. Raises ConstraintError."""
    return ConstraintSpec("grammar", ready_grammar(_text(param, text), param), param)


def schema_spec(schema: Any, param: str) -> ConstraintSpec:
    """A constraint to JSON that fits a schema. Raises ConstraintError."""
    return ConstraintSpec("json", ready_schema(schema, param), param)


def _response_format(name: str, value: Any) -> ConstraintSpec | None:
    wanted = _mapping(name, value)
    kind = wanted.get("type")
    if kind not in FORMATS:
        hint = (nearest(kind, FORMATS) if isinstance(kind, str) else "") or f"types are: {one_of(FORMATS)}"
        what = "has no type" if kind is None else f"has the unknown type {shown(kind)}"
        raise ConstraintError(f"{name} {what}", param=name, hint=hint)
    _known(name, wanted, ("type", "json_schema") if kind == "json_schema" else ("type",))
    if kind == "json_object":
        return schema_spec({"type": "object"}, name)
    return None if kind == "text" else _json_schema(name, wanted)


def _json_schema(name: str, wanted: Mapping[str, Any]) -> ConstraintSpec:
    field = f"{name}.json_schema"
    inner = _mapping(field, wanted.get("json_schema"), name)
    _known(field, inner, ("name", "description", "schema", "strict"), name)
    if inner.get("schema") is None:
        hint = 'give a schema, or {"type": "json_object"} for any object'
        raise ConstraintError(f"{field} has no schema", param=name, hint=hint)
    if inner.get("strict") is not None:
        boolean(f"{field}.strict", inner["strict"])
    label = inner.get("name", "")
    if not isinstance(label, str) or len(label) > MAX_NAME:
        raise ConstraintError(f"{field}.name must be a text of at most {MAX_NAME} characters", param=name)
    return schema_spec(inner["schema"], name)


def _regex(name: str, value: Any) -> ConstraintSpec:
    pattern = _text(name, value)
    try:
        return ConstraintSpec("regex", full_match(pattern), name)
    except PatternError as error:
        hint = "write it in the syntax that Python and ECMAScript share; see docs/structured_output.md"
        raise ConstraintError(f"{name} cannot be used: {error}", param=name, hint=hint) from error


def _grammar(name: str, value: Any) -> ConstraintSpec:
    return grammar_spec(value, name)


def _choices(name: str, value: Any) -> ConstraintSpec:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item for item in value) or not value:
        raise ConstraintError(f"{name} must be a list of non-empty strings", param=name)
    choices = list(dict.fromkeys(_text(name, item) for item in value))
    if len(choices) > MAX_CHOICES or sum(map(len, choices)) > MAX_CHARACTERS:
        message = f"{name} may have {MAX_CHOICES} strings with {MAX_CHARACTERS} characters together"
        raise ConstraintError(message, param=name)
    return ConstraintSpec("choices", json.dumps(choices, ensure_ascii=False), name)


_READERS: Final[Mapping[str, Callable[[str, Any], ConstraintSpec | None]]] = {
    "response_format": _response_format,
    "regex": _regex,
    "grammar": _grammar,
    "choices": _choices,
}


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConstraintError(f"{name} must be a non-empty string, not {shown(value)}", param=name)
    try:
        return encodable(value, name)
    except RequestError as error:
        raise ConstraintError(error.message, param=name, hint=error.hint) from error


def _mapping(field: str, value: Any, param: str | None = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        hint = 'for example {"type": "json_object"}' if param is None else "it holds name, schema and strict"
        raise ConstraintError(f"{field} must be an object, not {shown(value)}", param=param or field, hint=hint)
    return value


def _known(field: str, value: Mapping[str, Any], allowed: tuple[str, ...], param: str | None = None) -> None:
    for key in value:
        if key not in allowed:
            hint = nearest(str(key), allowed) or f"fields are: {one_of(allowed)}"
            raise ConstraintError(f"{field} has the unknown field {shown(key)}", param=param or field, hint=hint)

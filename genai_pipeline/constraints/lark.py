"""Grammars of users, in the grammar library's dialect of Lark: what is embedded in them is checked like anything else.

Schemas after ``%json`` become ready schemas, so that an unsupported keyword is refused in a grammar, too. What would
be accepted and do nothing here (temperatures, captures), or loosen the text (library options), is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from genai_pipeline.constraints.schemas import ready_schema
from genai_pipeline.errors import ConstraintError

MAX_CHARACTERS: Final = 262_144

_WORDS: Final = re.compile(
    r"""(?P<skip> "(?:\\.|[^"\\\n])*" | //[^\n]* | \#[^\n]* | /(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/ )
    | (?P<json> %json\b )
    | (?P<options> %llguidance\b )
    | (?P<attribute> \[ [^\]\n]* \] (?=\s*:) )""",
    re.VERBOSE,
)
_ATTRIBUTES: Final = {
    "temperature": "sampling options belong to the request",
    "capture": "the whole answer is returned",
    "stop_capture": "the whole answer is returned",
}


def ready_grammar(text: str, param: str) -> str:
    """The grammar with its schemas made ready. Raises ConstraintError."""
    if len(text) > MAX_CHARACTERS:
        message = f"{param} has {len(text)} characters, at most {MAX_CHARACTERS} are read"
        raise ConstraintError(message, param=param)
    return "".join(_parts(text, param))


def _parts(text: str, param: str) -> Iterator[str]:
    """Pieces of the grammar, copied or made ready."""
    at = 0
    while (found := _WORDS.search(text, at)) is not None:
        yield text[at : found.end()]
        at = found.end()
        if found["json"]:
            schema, at = _schema(text, at, param)
            yield f" {schema}"
        elif found["options"]:
            message = f"{param} sets options by %llguidance, which is not supported"
            raise ConstraintError(message, param=param, hint="leave the line out")
        elif found["attribute"]:
            _check_attributes(found.group(), param)
    yield text[at:]


def _schema(text: str, at: int, param: str) -> tuple[str, int]:
    """The ready schema that stands at a position of a grammar, and the position after it."""
    while text[at : at + 1].isspace():
        at += 1
    try:
        schema, end = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        line = text.count("\n", 0, at) + 1
        raise ConstraintError(f"{param} has no JSON after %json in line {line}: {error}", param=param) from error
    return ready_schema(schema, param), end


def _check_attributes(attributes: str, param: str) -> None:
    for name in re.findall(r"[a-z_]+", attributes):
        if name in _ATTRIBUTES:
            message = f"{param} has the rule attribute '{name}', which is not supported"
            raise ConstraintError(message, param=param, hint=_ATTRIBUTES[name])

"""The Lark text of a constraint: the rule of the answer, and the whole with what may stand before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from genai_pipeline.constraints.patterns import literal
from genai_pipeline.constraints.spec import ConstraintSpec, Preamble, grammar_spec

SpecialId = Callable[[str], int | None]  # the id of a control token's text, None for ordinary text

_ANYTHING: Final = r"(.|\n)*"


def answer_rules(spec: ConstraintSpec) -> str:
    """Lark rules that define ``answer``; of the names beginning with ANSWER_ others should keep off."""
    if spec.kind == "json":
        return f"answer: %json {spec.source}"
    if spec.kind == "grammar":
        return f"answer: %lark {{\n{spec.source}\n}}"
    return f"answer: ANSWER_TEXT\nANSWER_TEXT: /{_pattern(spec)}/"


def combined_spec(rules: str, param: str, answer: ConstraintSpec | None = None) -> ConstraintSpec:
    """A constraint of Lark rules with a rule ``start``, which may refer to the rule ``answer`` of another constraint.

    The schemas in ``rules`` are checked, as in a grammar of a user. Raises ConstraintError naming ``param``.
    """
    ready = grammar_spec(rules, param)
    if answer is None:
        return ready
    return ConstraintSpec("grammar", f"{ready.source}\n{answer_rules(answer)}", param, answer.preamble)


def whole_grammar(spec: ConstraintSpec, special_id: SpecialId, *, drops_space: bool) -> str:
    """Lark text of everything a generation may write: reasoning if the spec has a preamble, then the answer.

    ``drops_space``: the text of a generation is that of its tokens without one space at the start, if there is one.
    """
    preamble = spec.preamble
    if preamble is None:
        if not drops_space:
            return spec.source if spec.kind == "grammar" else f"start: answer\n{answer_rules(spec)}"
        return f"start: first\n{_first(spec)}\n{answer_rules(spec)}"
    rules = [answer_rules(spec), _thought(preamble, special_id), rf"gap: /\n{{0,{preamble.line_ends}}}/"]
    if preamble.mandatory:
        return "\n".join(["start: thought gap answer", *rules])
    opening = _tag(preamble.open, special_id)
    space = '" "? ' if drops_space else ""
    rules.append(_first(spec, drops_space=drops_space, without=opening if opening.startswith('"') else ""))
    return "\n".join([f"start: first | {space}{opening} thought gap answer", *rules])


def _first(spec: ConstraintSpec, *, drops_space: bool = True, without: str = "") -> str:
    """The rule of an answer that begins the generation, told apart from reasoning that begins with ``without``."""
    if spec.kind in ("json", "grammar"):
        return 'first: " "? answer' if drops_space else "first: answer"
    lines = ["first: ANSWER_FIRST"]
    body = "ANSWER_TEXT"
    if without:
        lines.append(
            f"ANSWER_OPEN: /{literal(json.loads(without))}{_ANYTHING}/\nANSWER_BODY: ANSWER_TEXT & ~ANSWER_OPEN"
        )
        body = "ANSWER_BODY"
    if drops_space:
        lines.append(f"ANSWER_SPACED: / {_ANYTHING}/")
        lines.append(f'ANSWER_FIRST: " " {body} | ({body} & ~ANSWER_SPACED)')
    else:
        lines.append(f"ANSWER_FIRST: {body}")
    return "\n".join(lines)


def _thought(preamble: Preamble, special_id: SpecialId) -> str:
    """Free text up to the close tag, which is one control token or ordinary text."""
    tag = _tag(preamble.close, special_id)
    if not tag.startswith('"'):
        return f"thought: THOUGHT_TEXT {tag}\nTHOUGHT_TEXT: /{_ANYTHING}/"
    return f"thought[lazy]: /{_ANYTHING}{literal(preamble.close)}/"


def _tag(text: str, special_id: SpecialId) -> str:
    token = special_id(text)
    return json.dumps(text, ensure_ascii=False) if token is None else f"<[{token}]>"


def _pattern(spec: ConstraintSpec) -> str:
    if spec.kind == "regex":
        return spec.source
    return "|".join(literal(choice) for choice in json.loads(spec.source))

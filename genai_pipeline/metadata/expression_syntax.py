"""From the text of an expression to Python's syntax tree, within bounds of length and depth."""

from __future__ import annotations

import ast
import warnings
from typing import Final

from genai_pipeline.errors import ExpressionError

MAX_LENGTH: Final = 1000  # characters of one expression
MAX_DEPTH: Final = 32  # nesting, of operators as of YAML lists
ALLOWED: Final = (
    "allowed are names, numbers, strings, lists, + - * / // %, comparisons, and/or/not, 'a if c else b', "
    "min, max, ceil, floor, present(x), x.length, x.shape[i] and x[key]"
)


def syntax_tree(text: str) -> ast.expr:
    """Python's syntax tree of one expression. Raises ExpressionError for what is none."""
    if not text:
        raise ExpressionError("the expression is empty")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"the expression is longer than {MAX_LENGTH} characters")
    if "\\" in text:
        raise ExpressionError("strings have no backslash escapes here")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python merely warns about is no clear expression
            body = ast.parse(text, mode="eval").body
    except (RecursionError, MemoryError):
        raise too_deep() from None
    except (SyntaxError, ValueError, Warning):
        if _brackets(text) > MAX_DEPTH:
            raise too_deep() from None
        raise ExpressionError(f"'{_shown(text)}' is no expression", hint=ALLOWED) from None
    rest = text.encode("utf-8", "surrogatepass")[body.end_col_offset or 0 :]
    if rest.strip(b" \t)"):
        raise ExpressionError(f"'{_shown(text)}' has something after the expression", hint=ALLOWED)
    return body


def too_deep() -> ExpressionError:
    """What is raised for too many levels."""
    hint = "let a stage compute a part of it, or write it with fewer brackets"
    return ExpressionError(f"the expression is nested too deeply: more than {MAX_DEPTH} levels", hint=hint)


def _brackets(text: str) -> int:
    """How deeply brackets nest in a text that does not parse."""
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _shown(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."

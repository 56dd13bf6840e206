"""Checks of values against each other: defaults within bounds, bounds the right way round, lists that can be filled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from genai_pipeline.metadata.build_values import named
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.references import all_stages
from genai_pipeline.metadata.schema_faults import shown
from genai_pipeline.problems import Problems, one_of

_TYPES: Final = {"integer": (int,), "number": (int, float), "boolean": (bool,), "string": (str,)}
_WORDS: Final = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text"}


def check_values(root: Node, problems: Problems) -> None:
    """Record every value that contradicts another one."""
    inputs = root.get("inputs")
    for name, node in named(inputs):
        if name != "parameters":
            _check_items(node, problems)
    for _, node in named(inputs.get("parameters") if inputs is not None else None):
        _check_parameter(node, problems)
    for generation in _generations(root):
        _check_generation(generation, problems)
    lookup = _get(root, "speculative", "lookup")
    if lookup is not None:
        _check_order(lookup, "min_match", "max_match", problems)


def _get(node: Node, *keys: str) -> Node | None:
    found: Node | None = node
    for key in keys:
        found = None if found is None else found.get(key)
    return found


def _plain(node: Node, key: str) -> Any:
    child = node.get(key)
    return None if child is None else child.plain()


def _generations(root: Node) -> Iterator[Node]:
    for node in (root, *all_stages(root)):
        generation = node.get("generation")
        if generation is not None:
            yield generation


def _check_order(node: Node, low: str, high: str, problems: Problems) -> bool:
    """Whether the lower bound is not above the upper one; recorded when it is."""
    first, second = node.get(low), node.get(high)
    if first is None or second is None or not first.plain() > second.plain():
        return True
    message = f"{low} {shown(first.plain())} is above {high} {shown(second.plain())}"
    problems.error(first.at, "value.bounds", message)
    return False


def _check_items(node: Node, problems: Problems) -> None:
    _check_order(node, "min_items", "max_items", problems)
    is_list, most = node.get("list"), _plain(node, "max_items")
    if is_list is None or most is None or is_list.plain() == (most != 1):
        return
    message = f"list: {shown(is_list.plain())} contradicts max_items: {most}"
    problems.error(is_list.at, "value.list", message, "max_items: 1 makes a plain value, any other a list")


def _check_parameter(node: Node, problems: Problems) -> None:
    bounds = [child for key in ("minimum", "maximum", "multiple_of", "default") if (child := node.get(key)) is not None]
    odd = [child for child in bounds if isinstance(child.value, float) and not math.isfinite(child.value)]
    for child in odd:
        problems.error(child.at, "value.bounds", "must be a finite number")
    default = node.get("default")
    if odd or not _check_order(node, "minimum", "maximum", problems) or default is None:
        return
    fault = _misfit(node, default.plain())
    if fault:
        problems.error(default.at, "value.default", f"the default {shown(default.plain())} {fault}")


def _misfit(node: Node, value: Any) -> str:
    """What is wrong with a parameter's default, "" when nothing is."""
    kind = str(_plain(node, "type"))
    if kind == "choice":
        values = _plain(node, "values")
        if values is None or value in values:
            return ""
        return f"is not one of the values: {one_of(map(str, values))}"
    whole = kind == "integer" and isinstance(value, float) and value.is_integer()
    if not whole and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return f"is not {_WORDS[kind]}"
    return _outside(value, _plain(node, "minimum"), _plain(node, "maximum"), _plain(node, "multiple_of"))


def _outside(value: Any, low: Any, high: Any, step: Any = None) -> str:
    if low is not None and value < low:
        return f"is below the minimum {low}"
    if high is not None and value > high:
        return f"is above the maximum {high}"
    if step is not None and abs(value / step - round(value / step)) > 1e-9:  # floats: 0.3 is a multiple of 0.1
        return f"is not a multiple of {step}"
    return ""


def _check_generation(node: Node, problems: Problems) -> None:
    """Ranges of overrides the right way round, and defaults inside them."""
    defaults = node.get("defaults")
    for name, rule in named(node.get("overrides")):
        if isinstance(rule.value, dict) and not _check_order(rule, "minimum", "maximum", problems):
            continue
        default = defaults.get(name) if defaults is not None else None
        if default is None:
            continue
        fault = _outside_rule(default.plain(), rule)
        if fault:
            message = f"the default {shown(default.plain())} {fault} that overrides allow"
            problems.error(default.at, "value.default", message, "a request could not set what it gets anyway")


def _outside_rule(value: Any, rule: Node) -> str:
    values = rule.plain() if isinstance(rule.value, tuple) else _plain(rule, "values")
    if values is not None and value not in values:
        return f"is not one of the values {one_of(map(str, values))}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return _outside(value, _plain(rule, "minimum"), _plain(rule, "maximum")) if number else ""

"""Checks of values against each other: defaults within bounds, bounds the right way round, lists that can be filled."""

from __future__ import annotations

import math
from typing import Any, Final

from genai_pipeline.metadata.build_values import listed, named
from genai_pipeline.metadata.nodes import Node
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
    for _, component in named(root.get("components")):
        kv = component.get("kv")
        for entry in listed(kv) or ((kv,) if kv is not None else ()):
            _check_initial(entry, problems)
    lookup = _get(root, "speculative", "lookup")
    if lookup is not None:
        check_order(lookup, "min_match", "max_match", problems)


def _get(node: Node, *keys: str) -> Node | None:
    found: Node | None = node
    for key in keys:
        found = None if found is None else found.get(key)
    return found


def _plain(node: Node, key: str) -> Any:
    child = node.get(key)
    return None if child is None else child.plain()


def check_order(node: Node, low: str, high: str, problems: Problems) -> bool:
    """Whether the lower bound is not above the upper one; recorded when it is."""
    first, second = node.get(low), node.get(high)
    if first is None or second is None or not first.plain() > second.plain():
        return True
    message = f"{low} {shown(first.plain())} is above {high} {shown(second.plain())}"
    problems.error(first.at, "value.bounds", message)
    return False


def _check_items(node: Node, problems: Problems) -> None:
    check_order(node, "min_items", "max_items", problems)
    is_list, most = node.get("list"), _plain(node, "max_items")
    if is_list is None or most is None or is_list.plain() == (most != 1):
        return
    message = f"list: {shown(is_list.plain())} contradicts max_items: {most}"
    problems.error(is_list.at, "value.list", message, "max_items: 1 makes a plain value, any other a list")


def _check_initial(entry: Node, problems: Problems) -> None:
    """Only state that is replaced as a whole starts with a value; a cache starts empty."""
    initial, update = entry.get("initial"), _plain(entry, "update")
    if initial is not None and update != "replace":
        message = f"initial: a state with update: {update} starts empty, without a value"
        problems.error(initial.named_at, "kv.initial", message, "remove it; initial is for update: replace")


def _check_parameter(node: Node, problems: Problems) -> None:
    bounds = [child for key in ("minimum", "maximum", "multiple_of", "default") if (child := node.get(key)) is not None]
    odd = [child for child in bounds if isinstance(child.value, float) and not math.isfinite(child.value)]
    for child in odd:
        problems.error(child.at, "value.bounds", "must be a finite number")
    default = node.get("default")
    if odd or not check_order(node, "minimum", "maximum", problems) or default is None:
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
    return outside(value, _plain(node, "minimum"), _plain(node, "maximum"), _plain(node, "multiple_of"))


def outside(value: Any, low: Any, high: Any, step: Any = None) -> str:
    """How a number lies outside of its bounds, "" when it does not."""
    if low is not None and value < low:
        return f"is below the minimum {low}"
    if high is not None and value > high:
        return f"is above the maximum {high}"
    if step is not None and abs(value / step - round(value / step)) > 1e-9:  # floats: 0.3 is a multiple of 0.1
        return f"is not a multiple of {step}"
    return ""

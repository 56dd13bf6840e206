"""Checks of generation settings: defaults a package may have, and overrides that fit their options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from genai_pipeline.metadata.build_values import named
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.references import all_stages
from genai_pipeline.metadata.schema import fits_option, load_schema
from genai_pipeline.metadata.schema_faults import shown
from genai_pipeline.metadata.value_checks import check_order, outside
from genai_pipeline.problems import Problems, one_of

_OF_A_REQUEST: Final = {"n": "how many answers there are is up to each request"}  # option -> why it has no default
_NUMBERS: Final = {"integer": "a whole number", "number": "a number"}


def check_generation(root: Node, problems: Problems) -> None:
    """Record every default and override, of the package or of a loop, that no request could use."""
    for generation in _generations(root):
        defaults = generation.get("defaults")
        for name, node in named(defaults):
            if name in _OF_A_REQUEST:
                message = f"'{name}' cannot have a default in a package: {_OF_A_REQUEST[name]}"
                problems.error(node.named_at, "value.default", message, "remove it; overrides can bound it")
        for name, rule in named(generation.get("overrides")):
            if _fits(name, rule, problems):
                _check_default(defaults.get(name) if defaults is not None else None, rule, problems)


def _generations(root: Node) -> Iterator[Node]:
    for node in (root, *all_stages(root)):
        generation = node.get("generation")
        if generation is not None:
            yield generation


def _fits(name: str, rule: Node, problems: Problems) -> bool:
    """Whether a rule is of the kind of its option, and leaves a request something to choose; recorded when not."""
    option: Mapping[str, Any] | None = load_schema()["$defs"]["options"]["properties"].get(name)
    if option is None or not isinstance(rule.value, dict | tuple):
        return True
    bounds = [node for key in ("minimum", "maximum") if (node := rule.get(key)) is not None]
    kind = option.get("type")
    if bounds and kind not in _NUMBERS:
        message = f"{name} is no number and has no {bounds[0].named_at.path.rpartition('.')[2]}"
        problems.error(bounds[0].named_at, "value.override", message, "write true, or a list of values")
        return False
    for bound in bounds:
        if kind == "integer" and isinstance(bound.value, float) and not bound.value.is_integer():
            message = f"{name} is a whole number; its bound is {shown(bound.value)}"
            problems.error(bound.at, "value.override", message)
            return False
    values = rule if isinstance(rule.value, tuple) else rule.get("values")
    odd = [node for node in (values.items if values is not None else ()) if not fits_option(name, node.plain())]
    for node in odd:
        message = f"{shown(node.plain())} is no value of {name}, which takes {_takes(option)}"
        problems.error(node.at, "value.override", message)
    return not odd and (not isinstance(rule.value, dict) or _leaves_some(name, rule, option, problems))


def _leaves_some(name: str, rule: Node, option: Mapping[str, Any], problems: Problems) -> bool:
    """Whether bounds are the right way round, and overlap those that the option has anyway."""
    if not check_order(rule, "minimum", "maximum", problems):
        return False
    least, most = option.get("minimum", option.get("exclusiveMinimum")), option.get("maximum")
    low, high = rule.get("minimum"), rule.get("maximum")
    beyond = low if low is not None and most is not None and low.plain() > most else None
    if high is not None and least is not None and high.plain() < least:
        beyond = high
    if beyond is not None:
        message = f"no {name} lies within a bound of {shown(beyond.plain())}: it takes {_takes(option)}"
        problems.error(beyond.at, "value.override", message)
    return beyond is None


def _takes(option: Mapping[str, Any]) -> str:
    """What an option takes, in words."""
    kind = option.get("type")
    if kind not in _NUMBERS:
        description: str = option["description"]
        return {"boolean": "true or false"}.get(str(kind), f"{description[0].lower()}{description[1:].rstrip('.')}")
    low, high = option.get("minimum", option.get("exclusiveMinimum")), option.get("maximum")
    above = "above" if "exclusiveMinimum" in option else "from" if high is not None else "of at least"
    return f"{_NUMBERS[kind]} {above} {low}" + ("" if high is None else f" to {high}")


def _check_default(default: Node | None, rule: Node, problems: Problems) -> None:
    """A default lies within what a request may set."""
    fault = _outside_rule(default.plain(), rule) if default is not None else ""
    if default is not None and fault:
        message = f"the default {shown(default.plain())} {fault} that overrides allow"
        problems.error(default.at, "value.default", message, "a request could not set what it gets anyway")


def _outside_rule(value: Any, rule: Node) -> str:
    values = rule if isinstance(rule.value, tuple) else rule.get("values")
    if values is not None and value not in values.plain():
        return f"is not one of the values {one_of(map(str, values.plain()))}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    low, high = rule.get("minimum"), rule.get("maximum")
    return outside(value, low and low.value, high and high.value) if number else ""

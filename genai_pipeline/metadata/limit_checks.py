"""Checks of limits and sizes that do not depend on a request: at least 1, and not in contradiction to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from genai_pipeline.errors import ExpressionError
from genai_pipeline.metadata.expressions import ValueType, check_type, evaluate, names
from genai_pipeline.metadata.model import Binding, LimitsSpec, PackageSpec, StageSpec
from genai_pipeline.problems import Problems


def check_limits(spec: PackageSpec, problems: Problems) -> None:
    """Record constant limits and sizes that are below 1 or have no value, and token limits that cannot be reached."""
    for binding in _sizes(spec):
        if not any(problem.at == binding.at for problem in problems):  # what is no expression was reported
            _check_size(binding, problems)
    limits = spec.limits
    if limits is None:
        return
    context, most = constant(limits.context_length), constant(limits.max_new_tokens)
    if limits.max_new_tokens is not None and context is not None and most is not None and most >= context:
        message = f"max_new_tokens {most} is not below context_length {context}, which holds the prompt too"
        problems.error(limits.max_new_tokens.at, "value.limit", message, "a prompt has at least one token")
    _check_defaults(spec, limits, problems)


def constant(binding: Binding | None) -> int | None:
    """The whole number that a binding gives whatever is requested; None if there is none."""
    if binding is None or names(binding.expr):
        return None
    try:
        value = evaluate(binding.expr, dict[str, int]().__getitem__)
    except ExpressionError:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _sizes(spec: PackageSpec) -> Iterator[Binding]:
    """Every size: limits, slots of an item, steps of a loop."""
    limits = spec.limits or LimitsSpec(spec.at)
    placeholders = (item.placeholder for item in spec.inputs.values())
    loops = [stage.iterate for stage in _all_stages(spec.stages) if stage.iterate is not None]
    found = (
        limits.context_length,
        limits.max_new_tokens,
        *limits.sizes.values(),
        *(placeholder.count for placeholder in placeholders if placeholder is not None),
        *(size for loop in loops for size in (loop.count, loop.max)),
    )
    return (binding for binding in found if binding is not None)


def _all_stages(stages: Iterable[StageSpec]) -> Iterator[StageSpec]:
    for stage in stages:
        yield stage
        yield from _all_stages(stage.body)


def _check_size(binding: Binding, problems: Problems) -> None:
    if names(binding.expr):
        return
    try:
        check_type(binding.expr, dict[str, ValueType]().__getitem__)
    except ExpressionError:
        return  # reported with all expressions that do not type
    try:
        value = evaluate(binding.expr, dict[str, int]().__getitem__)
    except ExpressionError as error:
        problems.error(binding.at, "value.limit", f"'{binding.text}' has no value: {error.message}", error.hint)
        return
    if isinstance(value, int | float) and value < 1:
        given = str(value) if binding.text == str(value) else f"{binding.text} = {value}"
        problems.error(binding.at, "value.limit", f"must be at least 1, not {given}")


def _check_defaults(spec: PackageSpec, limits: LimitsSpec, problems: Problems) -> None:
    """Default lengths that the limits do not let any request have."""
    if spec.generation is None:
        return
    context, most = constant(limits.context_length), constant(limits.max_new_tokens)
    for name in ("max_new_tokens", "min_new_tokens"):
        value = spec.generation.defaults.get(name)
        at = replace(spec.generation.at, path=f"{spec.generation.at.path}.defaults.{name}")
        if value is None:
            continue
        if most is not None and value > most:
            problems.error(at, "value.default", f"the default {name} {value} is above limits.max_new_tokens {most}")
        elif context is not None and value >= context:
            message = f"the default {name} {value} is not below limits.context_length {context}"
            problems.error(at, "value.default", message, "leave it out: the default is up to the context")

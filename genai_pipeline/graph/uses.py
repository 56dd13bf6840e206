"""Where a stage uses values: every expression of a stage with the port it feeds and what is wanted there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from genai_pipeline.errors import ExpressionError
from genai_pipeline.metadata.expressions import Expr, Name, ValueType, names, parse
from genai_pipeline.metadata.model import Binding, DecodeSpec, OpCallSpec, OutputSpec, PackageSpec, StageSpec
from genai_pipeline.metadata.operations import known_operation
from genai_pipeline.problems import Location

SLOT: Final = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)  # of a prompt template
_WANTED: Final[Mapping[str, ValueType]] = {"integer": "integer", "number": "number", "boolean": "boolean"}
STATE_PREFIX: Final = "state:"  # of the pseudo value that stands for a component's state


@dataclass(frozen=True, slots=True)
class Use:
    """An expression in its place: ``port`` is an input port, or the key path of what takes it (``carry.x.next``)."""

    port: str
    expr: Expr
    at: Location
    wants: ValueType | None = None
    admission: bool = False  # read before anything runs: only parameters and sizes
    tentative: bool = False  # a parameter of an unknown op: a literal unless it names values
    item: str | None = None  # the input whose fields are read of one item, be it a list or not


def stage_uses(stage: StageSpec) -> Iterator[Use]:
    """What a stage reads where it stands; what its body reads at the end of a step is ``body_uses``."""
    yield from _ports(stage.inputs, "")
    if stage.when is not None:
        yield _bound("when", stage.when, "boolean")
    if stage.guide is not None:
        yield _bound("guide.scale", stage.guide.scale, "number")
        yield from _ports(stage.guide.negative, "guide.negative.")
    if stage.op is not None:
        yield from _parameters(stage.op, stage.params, stage.at, "with.")
    yield from _decode_uses(stage)
    yield from _iterate_uses(stage)


def body_uses(stage: StageSpec) -> Iterator[Use]:
    """What a loop reads of its body's values when a step has run."""
    loop = stage.decode or stage.iterate
    if loop is None:
        return
    if stage.decode is not None:
        yield from _decode_ends(stage)
    if stage.iterate is not None and stage.iterate.until is not None:
        yield named(stage.iterate.until, "until", below(stage.iterate.at, "until"))
    for name, carry in loop.carry.items():
        yield _bound(f"carry.{name}.next", carry.next)
    for name, collect in loop.collect.items():
        yield named(collect.value, f"collect.{name}", collect.at)


def output_uses(outputs: Iterable[OutputSpec]) -> Iterator[Use]:
    """What the declared outputs read, timed segments of a text included."""
    for output in outputs:
        yield named(output.value, f"outputs.{output.name}", output.at)
        segments = output.options.get("segments")
        if isinstance(segments, str):
            yield named(segments, f"outputs.{output.name}.segments", below(output.at, "segments"))


def admission_uses(spec: PackageSpec) -> Iterator[Use]:
    """What is read before anything runs: limits, and how many slots an item takes up."""
    if spec.limits is not None:
        limits = {"context_length": spec.limits.context_length, "max_new_tokens": spec.limits.max_new_tokens}
        for name, binding in {**limits, **spec.limits.sizes}.items():
            if binding is not None:
                yield _bound(f"limits.{name}", binding, "integer", admission=True)
    for name, owner in spec.inputs.items():
        if owner.placeholder is not None and owner.placeholder.count is not None:
            use = _bound(f"inputs.{name}.placeholder.count", owner.placeholder.count, "integer", admission=True)
            yield replace(use, item=name)


def named(name: str, port: str, at: Location) -> Use:
    """A use of one value by its name."""
    return Use(port, Name(name), at)


def below(at: Location, key: str) -> Location:
    """The place of a plain key of a construct that only knows its own place."""
    return replace(at, path=f"{at.path}.{key}" if at.path else key)


def _decode_uses(stage: StageSpec) -> Iterator[Use]:
    decode = stage.decode
    if decode is None:
        return
    yield from _prompt_uses(decode)
    if decode.times is not None and decode.times.when is not None:
        yield _bound("times.when", decode.times.when, "boolean")
    for name, carry in decode.carry.items():
        yield _bound(f"carry.{name}.initial", carry.initial)
    if decode.positions is not None:
        yield from _call(decode.positions, "positions.")
    if decode.walk is not None:
        yield _bound("walk.rows", decode.walk.rows)
        if decode.walk.length is not None:
            yield _bound("walk.length", decode.walk.length)


def _prompt_uses(decode: DecodeSpec) -> Iterator[Use]:
    if decode.prompt is not None:
        yield _bound("prompt", decode.prompt)
    for piece in decode.prompt_template or ():
        for slot in SLOT.findall(piece.text):
            yield named(f"parameters.{slot}", "prompt", below(decode.at, "prompt"))
        if piece.when is not None:
            yield _bound("prompt", piece.when, "boolean")


def _decode_ends(stage: StageSpec) -> Iterator[Use]:
    decode = stage.decode
    assert decode is not None
    for key in ("logits", "tokens"):
        name = getattr(decode, key)
        if name is not None:
            yield named(name, key, below(decode.at, key))
    if decode.stop is not None and decode.stop.when is not None:
        yield _bound("stop.when", decode.stop.when, "boolean")
    if decode.walk is not None and decode.walk.advance is not None:
        yield _bound("walk.advance", decode.walk.advance)


def _iterate_uses(stage: StageSpec) -> Iterator[Use]:
    iterate = stage.iterate
    if iterate is None:
        return
    if iterate.count is not None:
        yield _bound("count", iterate.count, "integer", admission=True)
    if iterate.max is not None:
        yield _bound("max", iterate.max, "integer", admission=True)
    if iterate.schedule is not None:
        yield from _call(iterate.schedule, "schedule.")
    if iterate.over is not None:
        yield _bound("over.value", iterate.over.value)
    for name, carry in iterate.carry.items():
        yield _bound(f"carry.{name}.initial", carry.initial)


def _call(call: OpCallSpec, prefix: str) -> Iterator[Use]:
    yield from _ports(call.inputs, prefix)
    yield from _parameters(call.op, call.params, call.at, f"{prefix}with.")


def _ports(inputs: Mapping[str, Binding | tuple[Binding, ...]], prefix: str) -> Iterator[Use]:
    for port, bound in inputs.items():
        for binding in bound if isinstance(bound, tuple) else (bound,):
            yield _bound(f"{prefix}{port}", binding)


def _bound(port: str, binding: Binding, wants: ValueType | None = None, *, admission: bool = False) -> Use:
    return Use(port, binding.expr, binding.at, wants, admission)


def _parameters(op: str, params: Mapping[str, Any], at: Location, prefix: str) -> Iterator[Use]:
    """Parameters of an operation that name values: those that its declaration has as numbers, booleans or lists.

    Where nobody knows the operation, what reads as an expression counts as one if there are values of its names.
    Parameters that are no expressions, or unknown, are reported by the checks of operations.
    """
    spec = known_operation(op)
    for name, value in params.items():
        declared = spec.parameters.get(name) if spec is not None else None
        if spec is not None and (declared is None or declared.is_literal):
            continue
        try:
            expr = parse(value, at)
        except ExpressionError:
            continue
        if names(expr):
            wants = None if declared is None else _WANTED.get(declared.type)
            yield Use(f"{prefix}{name}", expr, below(at, f"with.{name}"), wants, tentative=spec is None)

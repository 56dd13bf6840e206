"""Checks of every expression in its place: that it types, gives what is wanted there, and reads what it may."""

from __future__ import annotations

from collections.abc import Iterator

from genai_pipeline.errors import ExpressionError
from genai_pipeline.graph.scope import Scope
from genai_pipeline.graph.uses import Use, admission_uses, body_uses, output_uses, stage_uses
from genai_pipeline.graph.values import FIELDS, ROWS, Value
from genai_pipeline.metadata.expressions import (
    Expr,
    Index,
    Literal,
    Measure,
    Name,
    Negate,
    Present,
    ValueType,
    check_type,
    names,
    walk,
)
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.problems import Problems, one_of

_ARTICLES = {"boolean": "true or false", "integer": "a whole number", "number": "a number"}


def check_expressions(root: Scope, spec: PackageSpec, problems: Problems) -> None:
    """Report expressions that do not type, of the wrong type, or that read what their place may not."""
    for scope, use in all_uses(root, spec):
        if use.tentative:
            continue
        _check_type(scope, use, spec, problems)
        _check_whole_inputs(scope, use, spec, problems)
        _check_axes(scope, use, problems)
        if use.admission:
            _check_admission(scope, use, problems)


def all_uses(root: Scope, spec: PackageSpec) -> Iterator[tuple[Scope, Use]]:
    """Every use of the package with the scope it stands in."""
    for use in (*output_uses(spec.outputs.values()), *admission_uses(spec)):
        yield root, use
    for scope in root.subtree():
        for node in scope.nodes:
            for use in stage_uses(node.spec):
                yield node.reading_scope, use
            if node.body is not None:
                for use in body_uses(node.spec):
                    yield node.body, use


def _check_type(scope: Scope, use: Use, spec: PackageSpec, problems: Problems) -> None:
    def type_of(name: str) -> ValueType:
        owner, _, field = name.partition(".")
        if owner == use.item:
            return next((kind for known, kind, *_ in FIELDS[spec.inputs[owner].modality] if known == field), "unknown")
        target = scope.resolve(name)
        if target is None or target[0] != name:
            raise KeyError(name)
        return target[1].type

    try:
        found = check_type(use.expr, type_of)
    except ExpressionError as error:
        problems.error(use.at, "graph.expression_type", f"{use.port}: {error.message}", error.hint)
        return
    if use.port == "prompt" and use.wants is None and found not in ("tensor", "list", "unknown"):
        if not isinstance(use.expr, Name):  # names are looked at by what they name
            given = _ARTICLES.get(found, f"a {found}")
            problems.error(use.at, "graph.prompt", f"the prompt needs tokens, not {given}", "a list has one: [...]")
    elif use.wants is not None and not _fits(found, use.wants):
        wanted, given = _ARTICLES.get(use.wants, use.wants), _ARTICLES.get(found, f"a {found}")
        hint = "ceil(...) or floor(...) gives a whole number" if (use.wants, found) == ("integer", "number") else ""
        problems.error(use.at, "graph.expression_type", f"{use.port} needs {wanted}, not {given}", hint)


def _fits(found: ValueType, wanted: ValueType) -> bool:
    return found in (wanted, "unknown") or (wanted, found) == ("number", "integer")


def _check_whole_inputs(scope: Scope, use: Use, spec: PackageSpec, problems: Problems) -> None:
    """An input's own name is for ``present``, ``for_each`` and ``.length``; ports take one of its fields."""
    for name in _whole_names(use.expr):
        target = scope.resolve(name)
        if target is None or not target[1].record:
            continue
        owner = spec.inputs.get(name)
        fields = ", ".join(f"{name}.{field[0]}" for field in FIELDS[owner.modality]) if owner else ""
        hint = f"bind one of its fields: {fields}" if fields else "bind one of its fields"
        problems.error(use.at, "graph.needs_field", f"{use.port}: '{name}' is an input as a whole", hint)


def _check_axes(scope: Scope, use: Use, problems: Problems) -> None:
    """``x.shape[i]`` of an axis that x has: an expression reads one row, without the batch axis of a loop's values."""
    for name, axis in _axes(use.expr):
        target = scope.resolve(f"{name}.shape")
        if target is None or target[0] != name or target[1].shape is None or target[1].origin not in ("input", "loop"):
            continue
        of_rows = target[1].shape[:1] == (ROWS,)
        rank = len(target[1].shape) - of_rows
        if -rank <= axis < rank:
            continue
        message = f"{use.port}: '{name}' has {rank} {'axis' if rank == 1 else 'axes'} here, so no .shape[{axis}]"
        known = [f"{name}.shape[{index}]" for index in range(rank)]
        if of_rows:
            known += [f"loop.{field}" for field in ("past_length", "sequence_lengths", "total_length")]
        hint = f"an expression reads one row, without the batch axis: there are {one_of(known)}"
        problems.error(use.at, "graph.expression_type", message, hint if known else "")


def _axes(expr: Expr) -> Iterator[tuple[str, int]]:
    """The (name, index) of every ``x.shape[i]`` whose index is written out."""
    for node in walk(expr):
        if not isinstance(node, Index) or not isinstance(node.base, Measure) or node.base.field != "shape":
            continue
        sign, index = (-1, node.index.operand) if isinstance(node.index, Negate) else (1, node.index)
        if isinstance(node.base.base, Name) and isinstance(index, Literal) and isinstance(index.value, int):
            yield node.base.base.text, sign * index.value


def _whole_names(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Name):
        yield expr.text
    elif not isinstance(expr, Present) and not (isinstance(expr, Measure) and expr.text is not None):
        for child in expr.children():
            yield from _whole_names(child)


def _check_admission(scope: Scope, use: Use, problems: Problems) -> None:
    for name in sorted(names(use.expr)):
        target = scope.resolve(name)
        if target is not None and not _known_before(target[1]):
            problems.error(
                use.at,
                "graph.admission_value",
                f"{use.port} reads '{name}', which is not known before the request is admitted",
                "use parameters and what the inputs' programs publish",
            )


def _known_before(value: Value) -> bool:
    return value.size

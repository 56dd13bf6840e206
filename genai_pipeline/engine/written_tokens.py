"""Tokens written out where a value is read, ``{tokens: ["<s>"]}``: made ids once, when a package is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from genai_pipeline.errors import PackageError
from genai_pipeline.graph.plan import ExecutionPlan, StagePlan
from genai_pipeline.metadata.build import DEFAULT_TOKENIZER
from genai_pipeline.metadata.expressions import ListExpr, Literal, TokensLiteral, walk
from genai_pipeline.metadata.model import Binding, StageSpec
from genai_pipeline.preprocess.tokenizer import Tokenizer


def with_token_ids(stage: StagePlan, tokenizers: Mapping[str, Tokenizer], name: str | None = None) -> StagePlan:
    """A stage, with those of its body, whose written tokens are lists of ids; ``name``: the tokenizer around it.

    Raises PackageError for a token that the tokenizer lacks.
    """
    decode = stage.spec.decode
    name = (decode.tokenizer if decode is not None else None) or name
    spec = _with_ids(stage.spec, tokenizers, name)
    body = stage.body
    if body is not None:
        inner = tuple(with_token_ids(one, tokenizers, name) for one in body.stages)
        changed = any(new is not old for new, old in zip(inner, body.stages, strict=True))
        body = replace(body, stages=inner) if changed else body
    return stage if spec is stage.spec and body is stage.body else replace(stage, spec=spec, body=body)


def plan_with_token_ids(plan: ExecutionPlan, tokenizers: Mapping[str, Tokenizer]) -> ExecutionPlan:
    """A plan whose written tokens are lists of ids; see ``with_token_ids``."""
    stages = tuple(with_token_ids(stage, tokenizers) for stage in plan.root.stages)
    return replace(plan, root=replace(plan.root, stages=stages))


def _with_ids(spec: StageSpec, tokenizers: Mapping[str, Tokenizer], name: str | None) -> StageSpec:
    """The bindings of a stage itself, not of its body."""
    changed = {
        field.name: new
        for field in fields(spec)
        if field.name != "body" and (new := _changed(old := getattr(spec, field.name), tokenizers, name)) is not old
    }
    return replace(spec, **changed) if changed else spec


def _changed(value: Any, tokenizers: Mapping[str, Tokenizer], name: str | None) -> Any:
    """A part of a stage with ids in place of written tokens; the very same where it has none."""
    if isinstance(value, Binding):
        if not any(isinstance(part, TokensLiteral) for part in walk(value.expr)):
            return value
        return replace(value, expr=_ids(value.expr, tokenizers, name))
    if isinstance(value, Mapping):
        made = {key: _changed(item, tokenizers, name) for key, item in value.items()}
        return made if any(made[key] is not value[key] for key in made) else value
    if isinstance(value, tuple):
        items = tuple(_changed(item, tokenizers, name) for item in value)
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        news = {key: new for key, old in parts.items() if (new := _changed(old, tokenizers, name)) is not old}
        return replace(value, **news) if news else value
    return value


def _ids(expr: Any, tokenizers: Mapping[str, Tokenizer], name: str | None) -> Any:
    """An expression, or a part of one, with lists of ids in place of written tokens."""
    if isinstance(expr, TokensLiteral):
        tokenizer = tokenizers.get(name or DEFAULT_TOKENIZER) or next(iter(tokenizers.values()), None)
        return ListExpr(tuple(Literal(_id(token, tokenizer)) for token in expr.tokens))
    if isinstance(expr, tuple):
        return tuple(_ids(part, tokenizers, name) for part in expr)
    if not is_dataclass(expr) or isinstance(expr, type):
        return expr
    return replace(expr, **{field.name: _ids(getattr(expr, field.name), tokenizers, name) for field in fields(expr)})


def _id(token: str | int, tokenizer: Tokenizer | None) -> int:
    if not isinstance(token, str):
        return token
    if tokenizer is None:
        raise PackageError(f"{token!r} is a token by its text, and the package has no tokenizer")
    return tokenizer.token_id(token)

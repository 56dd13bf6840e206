"""From nodes to components: graphs, variants, batching, session settings and declared state."""

from __future__ import annotations

from typing import Any

from genai_pipeline.metadata.build_values import integer, listed, per_layer, plain, several
from genai_pipeline.metadata.model import ComponentSpec, KvSpec, SessionSpec, SpanSpec, VariantSpec
from genai_pipeline.metadata.nodes import Node


def component(name: str, node: Node) -> ComponentSpec:
    """One component."""
    get = node.get
    model = get("model")
    pair = model if model is not None and isinstance(model.value, dict) else None
    return ComponentSpec(
        at=node.named_at,
        name=name,
        model=plain(pair.get("first") if pair else model),
        model_later=plain(pair.get("later")) if pair else None,
        package=plain(get("package")),
        component=plain(get("component")),
        variants=tuple(_variant(item) for item in listed(get("variants"))),
        batch=plain(get("batch"), "stack"),
        no_batch_axis=several(get("no_batch_axis")),
        pad=plain(get("pad"), {}),
        span=_span(get("span")),
        session=_session(get("session")),
        kv=_states(get("kv")),
    )


def _variant(node: Node) -> VariantSpec:
    return VariantSpec(node.at, plain(node.get("model")), plain(node.get("provider")), plain(node.get("precision")))


def _span(node: Node | None) -> SpanSpec | None:
    if node is None:
        return None
    return SpanSpec(node.named_at, per_layer(node.get("first")), per_layer(node.get("later")))


def _session(node: Node | None) -> SessionSpec | None:
    if node is None:
        return None
    options = {provider: _texts(child) for provider, child in _entries(node.get("provider_options"))}
    return SessionSpec(node.named_at, several(node.get("providers")), options, _texts(node.get("config")))


def _entries(node: Node | None) -> list[tuple[str, Node]]:
    return list(node.mapping.items()) if node is not None else []


def _texts(node: Node | None) -> dict[str, str]:
    """A runtime's settings, which are text: true becomes "1" and false "0", as runtimes write them."""
    return {key: _text(child.plain()) for key, child in _entries(node)}


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _states(node: Node | None) -> tuple[KvSpec, ...]:
    if node is None:
        return ()
    return tuple(_state(item) for item in node.items) if isinstance(node.value, tuple) else (_state(node),)


def _state(node: Node) -> KvSpec:
    get = node.get
    shape = get("shape")
    return KvSpec(
        at=node.named_at,
        update=plain(get("update")),
        past=plain(get("past")),
        present=plain(get("present")),
        layers=per_layer(get("layers")),
        parts=several(get("parts")),
        heads=per_layer(get("heads")),
        head_dim=per_layer(get("head_dim")),
        dtype=per_layer(get("dtype")),
        window=per_layer(get("window")),
        shape=None if shape is None else tuple(per_layer(shape)),
        initial=plain(get("initial")),
        source=plain(get("from")),
        history=integer(get("history")),
        sinks=integer(get("sinks")),
        keep=plain(get("keep"), "request"),
    )

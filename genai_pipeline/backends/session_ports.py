"""The ports of a session: what its runtime says of them, and the file where it knows better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genai_pipeline.backends.dtypes import runtime_dtype_name
from genai_pipeline.graph.signature import GraphSignature, Port


def session_signature(session: Any, source: GraphSignature, rewritten: frozenset[str]) -> GraphSignature:
    """Ports of a session: as the file has them, except for those that a rewrite added or changed."""

    def port(arg: Any, known: Mapping[str, Port]) -> Port:
        return known[arg.name] if arg.name in known and arg.name not in rewritten else _port(arg)

    return GraphSignature(
        inputs={arg.name: port(arg, source.inputs) for arg in session.get_inputs()},
        outputs={arg.name: port(arg, source.outputs) for arg in session.get_outputs()},
        opset=source.opset,
        metadata=source.metadata,
        windows=source.windows,
    )


def _port(arg: Any) -> Port:
    shape = tuple(dim if isinstance(dim, int) else dim or "" for dim in arg.shape)
    return Port(arg.name, runtime_dtype_name(arg.type), shape)

"""A compiled plan for people and programs: what ``inspect`` shows.

``to_json`` gives a plain dict whose keys are stable:

| key | content |
|---|---|
| ``name``, ``summary``, ``capabilities`` | of the package |
| ``inputs``, ``parameters``, ``outputs`` | by name, with modality or type; of an input its ``program`` and ``placeholder`` |
| ``programs`` | by name, steps with ``op`` and ``with`` |
| ``stages`` | in the order they run: ``id``, ``kind``, ``component`` or ``op``, ``with`` (parameters of the operation), ``when``, ``inputs`` (port to binding), ``loop`` (what a loop reads besides), ``outputs`` (port to value key), ``reads``, ``drop_after``, ``after_choice``, ``batch_key``, ``for_each`` (key of the list it runs over) and ``body`` (``id``, ``kind``, ``levels``, ``stages``) of loops and groups |
| ``levels`` | ids of the stages that may run side by side |
| ``values`` | every value that is made or read: ``key``, ``type``, ``dtype``, ``shape``, ``produced_by``, ``scope`` |
| ``components`` | ``model``, the ``variant`` that it is, ports, states, ``bytes_per_token``, ``bytes_fixed`` |
| ``memory`` | ``bytes_per_token``, ``bytes_fixed``, ``context_length`` (null: not fixed), ``bytes_at_context`` |
| ``left_out`` | stages that no output depends on |
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from genai_pipeline.graph.diagram import to_dot, to_mermaid
from genai_pipeline.graph.plan import ComponentPlan, ExecutionPlan, ScopePlan, StagePlan, StatePlan
from genai_pipeline.graph.plan_text import dims, text_lines
from genai_pipeline.graph.signature import Port
from genai_pipeline.graph.values import is_list
from genai_pipeline.metadata.limit_checks import constant
from genai_pipeline.metadata.model import (
    Binding,
    CollectSpec,
    InputSpec,
    OverSpec,
    PackageSpec,
    StageSpec,
    TemplatePiece,
)


def to_json(plan: ExecutionPlan) -> dict[str, Any]:
    """The plan as JSON-ready values; see the module for the keys."""
    package = plan.package
    return {
        "name": package.name,
        "summary": package.summary,
        "capabilities": sorted(plan.capabilities),
        "inputs": {name: _input(spec) for name, spec in package.inputs.items()},
        "programs": {name: [_call(step.op, step.params) for step in p.steps] for name, p in package.programs.items()},
        "parameters": {name: {"type": spec.type, "default": spec.default} for name, spec in package.parameters.items()},
        "outputs": {
            name: {"modality": package.outputs[name].modality, "value": key} for name, key in plan.outputs.items()
        },
        "stages": [_stage(stage) for stage in plan.root.stages],
        "levels": [list(level) for level in plan.root.levels],
        "values": list(_values(plan)),
        "components": {name: _component(component) for name, component in plan.components.items()},
        "memory": memory(plan),
        "left_out": list(plan.facts.get("left_out", ())),
    }


def _input(spec: InputSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"modality": spec.modality, "list": is_list(spec), "required": spec.required}
    named = {"program": spec.program, "max_items": spec.max_items, "default": spec.default}
    found |= {name: value for name, value in named.items() if value is not None}
    if spec.placeholder is not None:
        count = spec.placeholder.count
        written = {"token": spec.placeholder.token, "count": None if count is None else count.text}
        found["placeholder"] = {**written, "expand": spec.placeholder.expand}
    return found


def _call(name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """An operation or a step of a program with its parameters."""
    return {"op": name, "with": dict(params)}


def memory(plan: ExecutionPlan) -> dict[str, int | None]:
    """Bytes of state one sequence takes: per token, fixed, and with a full context where that is declared."""
    per_token = sum(component.bytes_per_token for component in plan.components.values())
    fixed = sum(component.bytes_fixed + _given_bytes(component) for component in plan.components.values())
    context = declared_context(plan.package)
    return {
        "bytes_per_token": per_token,
        "bytes_fixed": fixed,
        "context_length": context,
        "bytes_at_context": None if context is None else per_token * context + fixed,
    }


def _given_bytes(component: ComponentPlan) -> int:
    """Bytes of states that are written once and whose length a graph fixes."""
    tensors = [tensor for state in component.states if not state.grows for tensor in state.tensors]
    return sum(tensor.bytes_per_token * tensor.length for tensor in tensors if tensor.length is not None)


def declared_context(package: PackageSpec) -> int | None:
    """The context length that a package declares; None when there is none or it depends on the request."""
    return constant(package.limits.context_length) if package.limits else None


def to_text(plan: ExecutionPlan) -> str:
    """The plan as text for people."""
    return "\n".join(text_lines(to_json(plan))) + "\n"


def _stage(stage: StagePlan) -> dict[str, Any]:
    spec = stage.spec
    found: dict[str, Any] = {"id": stage.id, "kind": spec.kind}
    if spec.run is not None:
        found["component"] = spec.run
    if spec.op is not None:
        found["op"] = spec.op
    found |= {
        "inputs": {port: _text(bound) for port, bound in spec.inputs.items()},
        "with": dict(spec.params),
        "loop": dict(_loop_settings(spec)),
        "outputs": dict(stage.outputs),
        "reads": dict(stage.reads),
        "drop_after": list(stage.drop_after),
        "after_choice": stage.after_choice,
        "batch_key": list(stage.batch_key),
    }
    if spec.when is not None:
        found["when"] = spec.when.text
    if stage.each is not None:
        found["for_each"] = stage.each
    if stage.body is not None:
        found["body"] = _scope(stage.body)
    return found


def _loop_settings(spec: StageSpec) -> Iterator[tuple[str, str]]:
    """What a loop reads, as written."""
    decode, iterate = spec.decode, spec.iterate
    if decode is not None:
        if decode.prompt_template is not None:
            yield "prompt", " ".join(map(_template_piece, decode.prompt_template))
        bound = {"prompt": decode.prompt, "logits": decode.logits, "tokens": decode.tokens}
    elif iterate is not None:
        if iterate.over is not None:
            yield "over", _over(iterate.over)
        bound = {"count": iterate.count, "until": iterate.until, "max": iterate.max}
    else:
        return
    for key, value in bound.items():
        if value is not None:
            yield key, value if isinstance(value, str) else value.text
    for name, carry in (decode or iterate).carry.items():  # type: ignore[union-attr]
        yield f"carry.{name}", f"{carry.initial.text}, then {carry.next.text}"
    for name, one in (decode or iterate).collect.items():  # type: ignore[union-attr]
        yield f"collect.{name}", _collected(one)


def _template_piece(piece: TemplatePiece) -> str:
    return piece.text if piece.when is None else f"{piece.text} (when {piece.when.text})"


def _over(over: OverSpec) -> str:
    """What an iterate loop goes over, and how."""
    around = f", {over.before} before and {over.after} after them" if over.before or over.after else ""
    return f"{over.value.text}, {over.chunk} of axis {over.axis} a step{around}"


def _collected(one: CollectSpec) -> str:
    """What a loop joins of its steps."""
    axis = "" if one.axis is None else f", joined on axis {one.axis}"
    return f"{one.value} of each step{axis}"


def _scope(scope: ScopePlan) -> dict[str, Any]:
    return {
        "id": scope.id,
        "kind": scope.kind,
        "levels": [list(level) for level in scope.levels],
        "stages": [_stage(stage) for stage in scope.stages],
    }


def _values(plan: ExecutionPlan) -> Iterator[dict[str, Any]]:
    for scope, graph in plan.scopes.items():
        for name, attributes in graph.nodes(data=True):
            if attributes["kind"] != "value" or attributes["scope"] != scope or graph.degree(name) == 0:
                continue
            if graph.out_degree(name) == 0 and attributes["produced_by"] is not None:
                continue  # made by the graph, read by nobody: not fetched
            shape = attributes["shape"]
            yield {
                "key": name.removeprefix("value:"),
                "type": attributes["type"],
                "dtype": attributes["dtype"],
                "shape": None if shape is None else list(shape),
                "produced_by": attributes["produced_by"],
                "scope": scope,
            }


def _component(component: ComponentPlan) -> dict[str, Any]:
    found: dict[str, Any] = {"model": component.model}
    if component.spec.package is not None:
        found["package"] = component.spec.package
    chosen = component.spec.chosen
    if chosen is not None:
        variant = {"provider": chosen.variant.provider, "precision": chosen.variant.precision}
        found["variant"] = {**variant, "reason": chosen.reason, "of": len(component.spec.variants)}
    if component.model_later is not None:
        found["model_later"] = component.model_later
    state_ports = _state_ports(component)
    return found | {
        "inputs": [_port(port) for name, port in component.signature.inputs.items() if name not in state_ports],
        "outputs": [_port(port) for name, port in component.signature.outputs.items() if name not in state_ports],
        "states": [_state(state) for state in component.states],
        "bytes_per_token": component.bytes_per_token,
        "bytes_fixed": component.bytes_fixed,
    }


def _state_ports(component: ComponentPlan) -> set[str | None]:
    tensors = [tensor for state in component.states for tensor in state.tensors]
    return {port for tensor in tensors for port in (tensor.past, tensor.present)}


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype, "shape": None if port.shape is None else list(port.shape)}


def _state(state: StatePlan) -> dict[str, Any]:
    return {
        "update": state.update,
        "tensors": len(state.tensors),
        "layers": len({tensor.layer for tensor in state.tensors}),
        "parts": sorted({tensor.part for tensor in state.tensors}),
        "dtypes": sorted({tensor.dtype for tensor in state.tensors}),
        "shapes": sorted({dims(tensor.shape) for tensor in state.tensors}),
        "from": state.source,
        "bytes_given": sum(one.bytes_per_token * (one.length or 0) for one in state.tensors if not state.grows),
        "bytes_per_token": sum(tensor.bytes_per_token for tensor in state.tensors) if state.grows else 0,
    }


def _text(bound: Binding | tuple[Binding, ...]) -> str:
    return "[" + ", ".join(item.text for item in bound) + "]" if isinstance(bound, tuple) else bound.text


__all__ = ["declared_context", "memory", "to_dot", "to_json", "to_mermaid", "to_text"]

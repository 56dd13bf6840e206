"""A compiled plan for people and programs: what ``inspect`` shows.

``to_json`` gives a plain dict whose keys are stable:

| key | content |
|---|---|
| ``name``, ``summary``, ``capabilities`` | of the package |
| ``inputs``, ``parameters``, ``outputs`` | by name, with modality or type |
| ``stages`` | in the order they run: ``id``, ``kind``, ``component`` or ``op``, ``inputs`` (port to binding), ``loop`` (what a loop reads besides), ``outputs`` (port to value key), ``reads``, ``drop_after``, ``after_choice``, ``batch_key``, ``for_each`` (key of the list it runs over) and ``body`` (``id``, ``kind``, ``levels``, ``stages``) of loops and groups |
| ``levels`` | ids of the stages that may run side by side |
| ``values`` | every value that is made or read: ``key``, ``type``, ``dtype``, ``shape``, ``produced_by``, ``scope`` |
| ``components`` | ``model``, ports, states, ``bytes_per_token``, ``bytes_fixed`` |
| ``memory`` | ``bytes_per_token``, ``bytes_fixed``, ``context_length`` (null: not fixed), ``bytes_at_context`` |
| ``left_out`` | stages that no output depends on |
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genai_pipeline.graph.diagram import to_dot, to_mermaid
from genai_pipeline.graph.plan import ComponentPlan, ExecutionPlan, ScopePlan, StagePlan, StatePlan
from genai_pipeline.graph.signature import Port
from genai_pipeline.metadata.limit_checks import constant
from genai_pipeline.metadata.model import Binding, PackageSpec, StageSpec


def to_json(plan: ExecutionPlan) -> dict[str, Any]:
    """The plan as JSON-ready values; see the module for the keys."""
    package = plan.package
    return {
        "name": package.name,
        "summary": package.summary,
        "capabilities": sorted(plan.capabilities),
        "inputs": {
            name: {"modality": spec.modality, "list": spec.is_list, "required": spec.required}
            for name, spec in package.inputs.items()
        },
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


def memory(plan: ExecutionPlan) -> dict[str, int | None]:
    """Bytes of state one sequence takes: per token, fixed, and with a full context where that is declared."""
    per_token = sum(component.bytes_per_token for component in plan.components.values())
    fixed = sum(component.bytes_fixed for component in plan.components.values())
    context = declared_context(plan.package)
    return {
        "bytes_per_token": per_token,
        "bytes_fixed": fixed,
        "context_length": context,
        "bytes_at_context": None if context is None else per_token * context + fixed,
    }


def declared_context(package: PackageSpec) -> int | None:
    """The context length that a package declares; None when there is none or it depends on the request."""
    return constant(package.limits.context_length) if package.limits else None


def to_text(plan: ExecutionPlan) -> str:
    """The plan as text for people."""
    return "\n".join(_text_lines(plan)) + "\n"


def _stage(stage: StagePlan) -> dict[str, Any]:
    spec = stage.spec
    found: dict[str, Any] = {"id": stage.id, "kind": spec.kind}
    if spec.run is not None:
        found["component"] = spec.run
    if spec.op is not None:
        found["op"] = spec.op
    found |= {
        "inputs": {port: _text(bound) for port, bound in spec.inputs.items()},
        "loop": dict(_loop_settings(spec)),
        "outputs": dict(stage.outputs),
        "reads": dict(stage.reads),
        "drop_after": list(stage.drop_after),
        "after_choice": stage.after_choice,
        "batch_key": list(stage.batch_key),
    }
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
            yield "prompt", " ".join(piece.text for piece in decode.prompt_template)
        bound = {"prompt": decode.prompt, "logits": decode.logits, "tokens": decode.tokens}
    elif iterate is not None:
        over = iterate.over.value if iterate.over else None
        bound = {"count": iterate.count, "over": over, "until": iterate.until, "max": iterate.max}
    else:
        return
    for key, value in bound.items():
        if value is not None:
            yield key, value if isinstance(value, str) else value.text
    for name, carry in (decode or iterate).carry.items():  # type: ignore[union-attr]
        yield f"carry.{name}", f"{carry.initial.text}, then {carry.next.text}"


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
        "shapes": sorted({_dims(tensor.shape) for tensor in state.tensors}),
        "bytes_per_token": sum(tensor.bytes_per_token for tensor in state.tensors) if state.grows else 0,
    }


def _text(bound: Binding | tuple[Binding, ...]) -> str:
    return "[" + ", ".join(item.text for item in bound) + "]" if isinstance(bound, tuple) else bound.text


def _text_lines(plan: ExecutionPlan) -> Iterator[str]:
    facts = to_json(plan)
    yield facts["name"] + (f": {facts['summary']}" if facts["summary"] else "")
    yield "capabilities: " + ", ".join(facts["capabilities"])
    for kind, detail in (("inputs", "modality"), ("parameters", "type"), ("outputs", "modality")):
        if facts[kind]:
            yield f"{kind}: " + ", ".join(f"{name} ({entry[detail]})" for name, entry in facts[kind].items())
    yield "stages, in the order they run:"
    values = {value["key"]: value for value in facts["values"]}
    yield from _stage_lines(facts["stages"], values, 1)
    for name, component in facts["components"].items():
        yield f"component {name}: {component['model']}"
        for side in ("inputs", "outputs"):
            for port in component[side]:
                yield f"  {side[:-1]} {port['name']}: {port['dtype']} {_dims(port['shape'])}"
        for state in component["states"]:
            yield f"  state {state['update']}: {_state_text(state)}"
    yield from _memory_lines(facts["memory"])
    if facts["left_out"]:
        yield "left out, since no output depends on them: " + ", ".join(facts["left_out"])


def _stage_lines(stages: list[dict[str, Any]], values: Mapping[str, Any], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for stage in stages:
        doer = stage.get("component") or stage.get("op")
        late = " (once the token is chosen)" if stage["after_choice"] else ""
        each = f" for each of {stage['for_each']}" if "for_each" in stage else ""
        yield f"{indent}{stage['id']}: {stage['kind']}{f' {doer}' if doer else ''}{each}{late}"
        for port, bound in {**stage["inputs"], **stage["loop"]}.items():
            yield f"{indent}  {port} <- {bound}"
        for port, key in stage["outputs"].items():
            yield f"{indent}  {port} -> {key}{_value_text(values.get(key))}"
        if "body" in stage:
            yield from _stage_lines(stage["body"]["stages"], values, depth + 1)


def _value_text(value: Mapping[str, Any] | None) -> str:
    if value is None or value["dtype"] is None:
        return ""
    return f" ({value['dtype']} {_dims(value['shape'])})"


def _dims(shape: Sequence[int | str] | None) -> str:
    return "of unknown rank" if shape is None else "[" + ", ".join(str(dim) or "?" for dim in shape) + "]"


def _state_text(state: Mapping[str, Any]) -> str:
    of = f"{state['tensors']} tensors in {state['layers']} layers, {', '.join(state['dtypes'])}"
    return f"{of} {', '.join(state['shapes'])}, {state['bytes_per_token']:,} bytes per token"


def _memory_lines(facts: Mapping[str, int | None]) -> Iterator[str]:
    yield f"state per sequence: {facts['bytes_per_token']:,} bytes per token and {facts['bytes_fixed']:,} fixed"
    if facts["context_length"] is not None:
        yield f"with the declared context of {facts['context_length']:,} tokens: {facts['bytes_at_context']:,} bytes"


__all__ = ["declared_context", "memory", "to_dot", "to_json", "to_mermaid", "to_text"]

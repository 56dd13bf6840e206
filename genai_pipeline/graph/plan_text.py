"""A compiled plan as text for people, made of what ``render.to_json`` gives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from genai_pipeline.graph.folding import fold

Facts = Mapping[str, Any]
_MOST: Final = 60  # characters of a parameter's value; longer ones are cut


def text_lines(facts: Facts) -> Iterator[str]:
    """The lines, outermost first: package, inputs, stages, components, memory."""
    yield facts["name"] + (f": {facts['summary']}" if facts["summary"] else "")
    yield "capabilities: " + ", ".join(facts["capabilities"])
    yield from _declared_lines(facts)
    yield "stages, in the order they run:"
    values = {value["key"]: value for value in facts["values"]}
    yield from _stage_lines(facts["stages"], values, 1)
    for name, component in facts["components"].items():
        borrowed = f" of the package {component['package']}" if "package" in component else ""
        later = f", later {component['model_later']}" if "model_later" in component else ""
        yield f"component {name}: {component['model']}{later}{borrowed}"
        yield from _component_lines(component)
    yield from _memory_lines(facts["memory"], facts["components"].values())
    if facts["left_out"]:
        yield "left out, since no output depends on them: " + ", ".join(facts["left_out"])


def dims(shape: Sequence[int | str] | None) -> str:
    """A shape as it is shown; an axis without a name is a question mark."""
    return "of unknown rank" if shape is None else "[" + ", ".join(str(dim) or "?" for dim in shape) + "]"


def _declared_lines(facts: Facts) -> Iterator[str]:
    yield "inputs:" if facts["inputs"] else "inputs: none"
    for name, one in facts["inputs"].items():
        yield f"  {name}: {', '.join(_input_words(one))}"
        steps = facts["programs"].get(one.get("program"), ())
        yield from (f"    {step['op']}{_with(step['with'])}" for step in steps)
    for kind, detail in (("parameters", "type"), ("outputs", "modality")):
        if facts[kind]:
            yield f"{kind}: " + ", ".join(f"{name} ({_called(entry, detail)})" for name, entry in facts[kind].items())


def _called(entry: Facts, detail: str) -> str:
    default = entry.get("default")
    return f"{entry[detail]}, {_value(default)}" if default is not None else str(entry[detail])


def _input_words(one: Facts) -> Iterator[str]:
    yield one["modality"]
    if one["list"]:
        yield f"up to {one['max_items']}" if "max_items" in one else "a list"
    if "default" in one:
        yield f"{_value(one['default'])} if not given"
    elif not one["required"]:
        yield "optional"
    if "placeholder" in one:
        place = one["placeholder"]
        many = place["expand"] if place["expand"] is not None else f"{place['count'] or 1} of them"
        yield f"{place['token']} in the prompt becomes {many}"
    if "program" in one:
        yield f"prepared by {one['program']}:"


def _stage_lines(stages: Sequence[Facts], values: Mapping[str, Facts], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for stage in stages:
        doer = stage.get("component") or stage.get("op")
        late = " (once the token is chosen)" if stage["after_choice"] else ""
        each = f" for each of {stage['for_each']}" if "for_each" in stage else ""
        when = f" when {stage['when']}" if "when" in stage else ""
        yield f"{indent}{stage['id']}: {stage['kind']}{f' {doer}' if doer else ''}{each}{when}{late}"
        if stage["with"]:
            yield f"{indent}  with{_with(stage['with'])}"
        for port, bound in {**stage["inputs"], **stage["loop"]}.items():
            yield f"{indent}  {port} <- {bound}"
        if "body" in stage:
            yield from _stage_lines(stage["body"]["stages"], values, depth + 1)
        yield from (f"{indent}  {line}" for line in _output_lines(stage["outputs"], values))


def _output_lines(outputs: Mapping[str, str], values: Mapping[str, Facts]) -> Iterator[str]:
    def texts(output: tuple[str, str]) -> tuple[str, ...]:
        port, key = output
        return port, key, _value_text(values.get(key))

    for shown, folded in fold(list(outputs.items()), texts):
        port, key, made = texts(folded[0])
        yield f"{shown} -> {key if len(folded) == 1 else key.replace(port, shown)}{made}"


def _value_text(value: Facts | None) -> str:
    if value is None:
        return ""
    listed = value["type"] == "list"
    if value["dtype"] is None:
        return " (list)" if listed else ""
    if listed:
        return f" (list of {value['dtype']})"
    shape = "" if value["shape"] is None else f" {dims(value['shape'])}"
    return f" ({value['dtype']}{shape})"


def _component_lines(component: Facts) -> Iterator[str]:
    if "variant" in component:
        variant = component["variant"]
        kind = " ".join(filter(None, (variant["provider"], variant["precision"]))) or "any provider"
        yield f"  variant {kind}, of {variant['of']}: {variant['reason']}"
    for side in ("inputs", "outputs"):
        ports = fold(component[side], lambda port: (port["name"], port["dtype"], dims(port["shape"])))
        for shown, folded in ports:
            yield f"  {side[:-1]} {shown}: {folded[0]['dtype']} {dims(folded[0]['shape'])}"
    for state in component["states"]:
        yield f"  state {state['update']}: {_state_text(state)}"


def _state_text(state: Facts) -> str:
    of = f"{state['tensors']} tensors in {state['layers']} layers, {', '.join(state['dtypes'])}"
    start = f", from {state['from']}" if state["from"] is not None else ""
    if state["update"] == "fixed":
        size = f"{state['bytes_given']:,} bytes" if state["bytes_given"] else "as long as it is given"
    else:
        size = f"{state['bytes_per_token']:,} bytes per token"
    return f"{of} {', '.join(state['shapes'])}{start}, {size}"


def _memory_lines(memory: Facts, components: Sequence[Facts]) -> Iterator[str]:
    states = [state for component in components for state in component["states"]]
    if not states:
        yield "no state is kept from token to token"
        return
    open_ended = any(state["update"] == "fixed" and not state["bytes_given"] for state in states)
    more = ", and what is given once" if open_ended else ""
    yield f"state per sequence: {memory['bytes_per_token']:,} bytes per token and {memory['bytes_fixed']:,} fixed{more}"
    if memory["context_length"] is not None:
        yield f"with the declared context of {memory['context_length']:,} tokens: {memory['bytes_at_context']:,} bytes"


def _with(params: Facts) -> str:
    return "".join(f" {name}={_value(value)}" for name, value in params.items())


def _value(value: Any) -> str:
    """A parameter as it is written in one line."""
    text = value if isinstance(value, str) and value.strip() == value != "" else json.dumps(value, default=str)
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."

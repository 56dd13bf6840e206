"""Which ports of a graph a state entry means: patterns with {layer} and {part} expanded, past and present paired."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from genai_pipeline.graph.signature import GraphSignature, Port
from genai_pipeline.graph.uses import below
from genai_pipeline.metadata.model import KvSpec
from genai_pipeline.problems import Problems, nearest, one_of

PART = "state"  # the part of a state whose pattern has no {part}
_SLOT = re.compile(r"\{(layer|part)\}")
_PART_NAME = re.compile(r"(?<![A-Za-z])(keys?|values?|k|v)(?![A-Za-z])")
_SHOWN = 4  # names in a message; the rest are counted


@dataclass(frozen=True, slots=True)
class StatePort:
    """One state tensor of a graph: its past port and the present port that replaces it (None: written elsewhere)."""

    layer: int
    part: str
    past: Port
    present: Port | None


def pair_ports(
    kv: KvSpec, signature: GraphSignature, model: str, presents: Mapping[str, Port], problems: Problems
) -> tuple[StatePort, ...]:
    """The state tensors of an entry in the order of layers and parts; everything that does not pair is reported.

    ``presents`` are the outputs that ``present`` is looked up in: the graph's own, or those of ``from``.
    """
    past = _matches(kv, "past", kv.past or "", signature.inputs, f"no input of {model}", problems)
    if kv.present is None:
        present: dict[tuple[int, str], Port] = {}
    else:
        present = _matches(kv, "present", kv.present, presents, "no output", problems)
        if past and present:
            _report_unpaired(kv, past, present, problems)
    _check_numbers(kv, past, problems)
    found = [StatePort(layer, part, port, present.get((layer, part))) for (layer, part), port in past.items()]
    order = {part: index for index, part in enumerate(kv.parts or dict.fromkeys(port.part for port in found))}
    return tuple(sorted(found, key=lambda port: (port.layer, order.get(port.part, len(order)))))


def _matches(
    kv: KvSpec, key: str, pattern: str, ports: Mapping[str, Port], nothing: str, problems: Problems
) -> dict[tuple[int, str], Port]:
    """Ports that a pattern means by (layer, part); reports a pattern that means none."""
    expression = _expression(pattern, kv.parts)
    default = kv.parts[0] if len(kv.parts) == 1 else PART
    found: dict[tuple[int, str], Port] = {}
    for name, port in ports.items():
        match = expression.fullmatch(name)
        if match is not None:
            groups = match.groupdict()
            layer = int(groups.get("layer") or 0)
            if not isinstance(kv.layers, tuple) or layer in kv.layers:  # the others are for another entry
                found[layer, groups.get("part") or default] = port
    if not found:
        hint = _nearest_port(pattern, ports) or (f"there are {one_of(ports)}" if ports else "")
        problems.error(below(kv.at, key), "kv.no_match", f"{nothing} matches {key}: '{pattern}'", hint)
    return found


def _expression(pattern: str, parts: Sequence[str]) -> re.Pattern[str]:
    """A pattern as a regular expression: {layer} is a number, {part} one of the parts or any word."""
    word = "|".join(re.escape(part) for part in parts) if parts else "[A-Za-z0-9_]*[A-Za-z][A-Za-z0-9_]*"
    groups = {"layer": r"(?P<layer>\d+)", "part": f"(?P<part>{word})"}
    text, used = "", set()
    for piece in re.split(r"(\{layer\}|\{part\})", pattern):
        slot = _SLOT.fullmatch(piece)
        name = slot.group(1) if slot else ""
        text += re.escape(piece) if not slot else f"(?P={name})" if name in used else groups[name]
        used.add(name)
    return re.compile(text)


def _nearest_port(pattern: str, ports: Iterable[str]) -> str:
    """The closest pattern that would match: ports with their numbers, and usual part names, taken for slots."""
    names = list(ports)
    patterns = dict.fromkeys(_as_pattern(name) for name in names)
    return nearest(pattern, patterns) or nearest(pattern, names)


def _as_pattern(name: str) -> str:
    """A port name as the pattern an author would write for it: its first number and last part name are slots."""
    pattern, numbers = re.subn(r"\d+", "{layer}", name, count=1)
    parts = list(_PART_NAME.finditer(pattern))
    if not numbers or not parts:
        return pattern
    return f"{pattern[: parts[-1].start()]}{{part}}{pattern[parts[-1].end() :]}"


def _report_unpaired(
    kv: KvSpec, past: Mapping[tuple[int, str], Port], present: Mapping[tuple[int, str], Port], problems: Problems
) -> None:
    """Report past ports without a present one, and the reverse, once per direction."""
    for key, ports, others, other in (("past", past, present, "present"), ("present", present, past, "past")):
        lonely = [port.name for slot, port in ports.items() if slot not in others]
        if lonely:
            message = f"{_listed(lonely)} of {key}: has no counterpart in {other}:"
            problems.error(below(kv.at, key), "kv.unpaired", message, "every state tensor is read and written back")


def _check_numbers(kv: KvSpec, past: Mapping[tuple[int, str], Port], problems: Problems) -> None:
    """Check the declared layers and parts, and that all layers have the same parts."""
    layers = sorted({layer for layer, _ in past})
    parts = list(dict.fromkeys(part for _, part in past))
    if not past:
        return
    at = below(kv.at, "layers")
    if isinstance(kv.layers, int) and kv.layers != len(layers):
        problems.error(
            at, "kv.layers", f"layers: {kv.layers} is declared; the graph has {len(layers)}: {_span(layers)}"
        )
    elif isinstance(kv.layers, tuple) and sorted(kv.layers) != layers:
        declared = _span(sorted(kv.layers))
        problems.error(at, "kv.layers", f"layers {declared} are declared; the graph has {_span(layers)}")
    absent = [part for part in kv.parts if part not in parts]
    if absent:
        message = f"parts: {_listed(absent)} matches no port; the graph has {_listed(parts)}"
        problems.error(below(kv.at, "parts"), "kv.parts", message)
        return
    gaps = [f"{layer}.{part}" for layer in layers for part in parts if (layer, part) not in past]
    if gaps:
        message = f"not every layer has the same parts: {_listed(gaps)} is not there"
        problems.error(below(kv.at, "past"), "kv.parts", message, "give layers of another kind an entry of their own")


def _listed(names: Sequence[str]) -> str:
    """Names in quotes, cut."""
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _span(numbers: Sequence[int]) -> str:
    """Layer numbers as text: a run is written as a range."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return one_of((str(number) for number in numbers), 32)

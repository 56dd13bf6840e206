"""State of a decoder: from ``%d`` patterns of genai_config.json to the ``kv`` entries of a component.

How a cache is written follows from the graph, not from ``past_present_share_buffer``: where an operator reads every
past port as a buffer (``GroupQueryAttention``) past and present share one (``in_place``); else present is past and the
new tokens (``append``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.importers.genai_config.ports import PartPorts, StatePattern


@dataclass(frozen=True, slots=True)
class PortPattern:
    """Past and present ports of one part by layer, as the graph has them."""

    past: str
    present: str
    part: str
    layers: tuple[int, ...]

    def names(self) -> list[str]:
        """The past ports."""
        return [self.past.replace("%d", str(layer)) for layer in self.layers]


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One ``kv`` entry: its fields, and the past ports it means."""

    fields: dict[str, Any]
    ports: tuple[str, ...]
    layers: tuple[int, ...] = field(default=())


def find_patterns(ports: PartPorts, signature: GraphSignature, wanted: Sequence[StatePattern]) -> list[PortPattern]:
    """Patterns that match ports of the graph."""
    found = []
    for (past_name, past_default), (present_name, present_default), part in wanted:
        past = ports.pattern("inputs", past_name, past_default)
        present = ports.pattern("outputs", present_name, present_default)
        layers = layers_of(past, signature)
        if layers:
            found.append(PortPattern(past, present, part, layers))
            ports.claim(found[-1].names())
            ports.matched(past_name, present_name)
            ports.check_outputs(present_name, [present.replace("%d", str(layer)) for layer in layers])
    return found


def layers_of(pattern: str, signature: GraphSignature) -> tuple[int, ...]:
    """The numbers that stand for ``%d`` in names of input ports, sorted."""
    if "%d" not in pattern:
        return ()
    before, _, after = pattern.partition("%d")
    form = re.compile(f"{re.escape(before)}(\\d+){re.escape(after)}")
    return tuple(sorted(int(match.group(1)) for name in signature.inputs if (match := form.fullmatch(name))))


def self_entries(patterns: Sequence[PortPattern], signature: GraphSignature, alone: bool = True) -> list[StateEntry]:
    """Keys and values of attention: one entry where the names differ in one word only, else one for each part.

    Not ``alone``: other state has names that differ in the part only, so the entry says which parts are its own.
    """
    update = "in_place" if all(name in signature.windows for p in patterns for name in p.names()) else "append"
    entries = state_entries(patterns, {"update": update})
    parts = {} if alone else {"parts": [pattern.part for pattern in patterns]}
    return [replace(entry, fields={**entry.fields, **parts}) if len(entries) == 1 else entry for entry in entries]


def recurrent_entries(patterns: Sequence[PortPattern]) -> list[StateEntry]:
    """State that each run replaces."""
    return [entry for pattern in patterns for entry in state_entries([pattern], {"update": "replace"})]


def state_entries(
    patterns: Sequence[PortPattern], fields: Mapping[str, Any], last: Mapping[str, Any] = MappingProxyType({})
) -> list[StateEntry]:
    """The entries, joined by ``{part}`` where one pattern says both; ``fields`` come first in them, ``last`` behind."""
    joined = _joined(patterns)
    if joined is not None:
        ports = tuple(name for pattern in patterns for name in pattern.names())
        return [StateEntry({**fields, **joined, **last}, ports, patterns[0].layers)]
    return [
        StateEntry(
            {
                **fields,
                "past": pattern.past.replace("%d", "{layer}"),
                "present": pattern.present.replace("%d", "{layer}"),
                "parts": [pattern.part],
                **last,
            },
            tuple(pattern.names()),
            pattern.layers,
        )
        for pattern in patterns
    ]


def _joined(patterns: Sequence[PortPattern]) -> dict[str, str] | None:
    """One past and one present pattern with ``{layer}`` and ``{part}`` for all, if there is one."""
    if len({pattern.layers for pattern in patterns}) != 1 or len(patterns) < 2:
        return None
    pasts = {_with_part(pattern.past, pattern.part) for pattern in patterns}
    presents = {_with_part(pattern.present, pattern.part) for pattern in patterns}
    if len(pasts) != 1 or len(presents) != 1:
        return None
    (past,), (present,) = pasts, presents
    return {"past": past, "present": present} if "{part}" in past and "{part}" in present else None


def _with_part(pattern: str, part: str) -> str:
    """The pattern with slots for the layer and for the last occurrence of the part's name."""
    slotted = pattern.replace("%d", "{layer}")
    head, found, tail = slotted.rpartition(part)
    return f"{head}{{part}}{tail}" if found else slotted

"""Inputs and outputs of a part: which port of its graph each nominal name of genai_config.json means.

A name that the file leaves out has the default of the format; one whose port the graph lacks is not fed there either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from genai_pipeline.graph.signature import GraphSignature, Port
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.problems import nearest

# nominal name -> its port when the file does not say, and what feeds it here
LOOP_INPUTS: Final[Mapping[str, tuple[str, str]]] = {
    "input_ids": ("input_ids", "loop.tokens"),
    "attention_mask": ("attention_mask", "loop.attention_mask"),
    "position_ids": ("position_ids", "loop.position_ids"),
}
# State patterns: nominal names of past and present, part by part, and their defaults.
StatePattern = tuple[tuple[str, str], tuple[str, str], str]  # (past name, default), (present name, default), part
SELF_STATE: Final[tuple[StatePattern, ...]] = (
    (("past_key_names", "past_key_values.%d.key"), ("present_key_names", "present.%d.key"), "key"),
    (("past_value_names", "past_key_values.%d.value"), ("present_value_names", "present.%d.value"), "value"),
)
RECURRENT_STATE: Final[tuple[StatePattern, ...]] = (
    (("past_conv_names", ""), ("present_conv_names", ""), "conv"),
    (("past_recurrent_names", ""), ("present_recurrent_names", ""), "recurrent"),
)
_REFUSED: Final[Mapping[str, str]] = {
    "past_names": "keys and values in one tensor with the batch on another axis than the first",
    "past_key_scale_names": "a quantised cache with scales of its own",
    "past_value_scale_names": "a quantised cache with scales of its own",
    "cache_indirection": "attention that follows beams through an indirection table",
    "block_table": "a cache kept in blocks inside the graph (PagedAttention)",
    "state_update_capture_count": "recurrent state that is captured for drafts",
    "rnn_prev_states": "recurrent state outside the patterns for layers",
    "past_sequence_length": "lengths whose meaning depends on the graph",
    "current_sequence_length": "lengths whose meaning depends on the graph",
    "total_sequence_length": "lengths whose meaning depends on the graph",
    "past_key_values_length": "lengths whose meaning depends on the graph",
    "token_type_ids": "token types, which text does not have here",
}


class PartPorts:
    """Looks nominal names up for one part (``model.decoder``), reporting each."""

    def __init__(self, part: ConfigNode, signature: GraphSignature, report: ImportReport) -> None:
        self._part = part
        self._inputs, self._outputs = part.mapping("inputs"), part.mapping("outputs")
        self._signature = signature
        self._report = report
        self._used: set[str] = set()

    def input(self, nominal: str, default: str, to: str) -> Port | None:
        """The input port, or None when the graph has none of that name; mapped to ``to``."""
        return self._port(self._inputs, self._signature.inputs, nominal, default, to)

    def output(self, nominal: str, default: str, to: str) -> Port | None:
        """The output port, or None."""
        return self._port(self._outputs, self._signature.outputs, nominal, default, to)

    def pattern(self, side: str, nominal: str, default: str) -> str:
        """A pattern with ``%d`` for the layer; "" when the file has none and the format neither."""
        node = self._inputs if side == "inputs" else self._outputs
        return node.text(nominal, default) if default else (node.text(nominal) if nominal in node else "")

    def matched(self, past: str, present: str) -> None:
        """The patterns of these nominal names mean ports of the graph."""
        for node, nominal, to in ((self._inputs, past, "kv.past"), (self._outputs, present, "kv.present")):
            if nominal in node:
                self._report.mapped(node.file, node.at(nominal), f"components.decoder.{to}")

    def check_outputs(self, nominal: str, names: Iterable[str]) -> None:
        """Refuses a pattern by whose ``names`` the graph lacks an output."""
        outputs = self._signature.outputs
        lacking = next((name for name in names if name not in outputs), None)
        if lacking is not None:
            why = f"the graph has no output '{lacking}'"
            hint = nearest(_as_pattern(lacking), dict.fromkeys(map(_as_pattern, outputs)))
            self._report.refused(self._part.file, self._outputs.at(nominal), why, hint)

    def claim(self, ports: Iterable[str]) -> None:
        """These inputs are fed by something else than a nominal name, such as state."""
        self._used.update(ports)

    @property
    def unfed(self) -> tuple[Port, ...]:
        """Inputs of the graph that nothing feeds so far."""
        return tuple(port for name, port in self._signature.inputs.items() if name not in self._used)

    def feed(self, port: Port, to: str) -> None:
        """The port takes the value ``to``, whatever nominal name it has."""
        self._used.add(port.name)
        for item in self._inputs.items():
            if item.value == port.name:
                self._report.mapped(item.file, item.path, to)

    def refuse_rest(self) -> None:
        """Refuses every input of the graph that nothing feeds, and reports names that mean nothing here."""
        said = {str(item.value): item for item in self._inputs.items()}
        idle = {text: item for text, item in said.items() if not _means(text, self._signature.inputs)}
        for name in [port.name for port in self.unfed]:
            item = said.get(name)
            named = next((other for other in idle.values() if other.path.rpartition(".")[2] == name), None)
            if item is None and named is not None:
                message = f"nothing feeds the graph's input '{name}'"
                self._report.refused(named.file, named.path, message, _misnamed(named, name))
                continue
            nominal = item.path.rpartition(".")[2] if item is not None else name
            why = _REFUSED.get(nominal, "nothing is known of what it takes")
            where = item.path if item is not None else self._part.at("filename")
            message = f"the graph has the input '{name}': {why}"
            self._report.refused(self._part.file, where, message, _likely(name, idle))
        for node, ports in ((self._inputs, self._signature.inputs), (self._outputs, self._signature.outputs)):
            for item in self._report.uncovered(node):
                if item.path != node.path:
                    there = "nothing needs it" if str(item.value) in ports else "the graph has no such ports"
                    self._report.dropped(item.file, item.path, there)

    def _port(self, node: ConfigNode, ports: Mapping[str, Port], nominal: str, default: str, to: str) -> Port | None:
        name = node.text(nominal, default)
        port = ports.get(name)
        if port is not None:
            self._used.add(name)
        if nominal in node:
            if port is not None:
                self._report.mapped(node.file, node.at(nominal), to)
            else:
                self._report.dropped(node.file, node.at(nominal), f"the graph has no port '{name}'")
        return port


def _as_pattern(port: str) -> str:
    """A port of one layer as the pattern for all."""
    return re.sub(r"\d+", "%d", port, count=1)


def _means(text: str, ports: Iterable[str]) -> bool:
    """Whether a name or pattern of the file is that of a port."""
    return any(text in (port, _as_pattern(port)) for port in ports)


def _likely(port: str, idle: Mapping[str, ConfigNode]) -> str:
    """What to do about an input that nothing feeds. ``idle``: names and patterns of the file that mean no port."""
    pattern = _as_pattern(port)
    found = next((text for text in idle if f"'{text}'" in nearest(pattern, idle)), None)
    if found is not None:
        return _misnamed(idle[found], pattern)
    return nearest(port, LOOP_INPUTS) if port not in LOOP_INPUTS else ""


def _misnamed(item: ConfigNode, meant: str) -> str:
    return f"{item.path} is '{item.value}', which is no input of the graph; '{meant}' is"

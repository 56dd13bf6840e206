"""``model.decoder`` of genai_config.json as a component with its state, and what it says about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from genai_pipeline.graph.signature import GraphSignature, Port
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.metadata_text import ComponentText
from genai_pipeline.importers.genai_config.ports import LOOP_INPUTS, RECURRENT_STATE, SELF_STATE, PartPorts
from genai_pipeline.importers.genai_config.session_options import read_session
from genai_pipeline.importers.genai_config.states import (
    StateEntry,
    find_patterns,
    recurrent_entries,
    self_entries,
)
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.graph_facts import read_facts

_RANK = 2  # of tokens, mask and positions
_KV_RANK = 4
_FROM_GRAPH = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_size")
# Input of an operator -> what it takes by the operator's definition, and its rank.
_BY_OPERATOR: Mapping[tuple[str, int], tuple[str, int]] = {
    ("GroupQueryAttention", 5): ("loop.last_index", 1),
    ("GroupQueryAttention", 6): ("loop.max_length", 0),
}


@dataclass(frozen=True, slots=True)
class DecoderPart:
    """The component, what its ports are bound to, and the port of its logits."""

    component: ComponentText
    inputs: dict[str, str]  # port -> value
    logits: str
    embeds: str | None  # the port that takes embeddings instead of tokens
    signature: GraphSignature


def read_decoder(
    source: SourceFolder,
    decoder: ConfigNode,
    report: ImportReport,
    extra: Sequence[StateEntry] = (),
    outer: Mapping[str, str] = MappingProxyType({}),
) -> DecoderPart:
    """Reads, maps and reports the whole part.

    ``extra``: state entries besides the decoder's own. ``outer``: nominal inputs -> values from outside the loop.
    """
    file = decoder.text("filename")
    signature = source.signature(file)
    report.mapped(decoder.file, decoder.at("filename"), "components.decoder.model")
    ports = PartPorts(decoder, signature, report)
    ports.claim(name for entry in extra for name in entry.ports)
    inputs = _loop_inputs(decoder, ports, report)
    found = {value: ports.input(nominal, nominal, value) for nominal, value in outer.items()}
    inputs |= {port.name: value for value, port in found.items() if port is not None}
    embeds = ports.input("inputs_embeds", "inputs_embeds", "what the embedding part gives")
    own = find_patterns(ports, signature, SELF_STATE)
    replaced = find_patterns(ports, signature, RECURRENT_STATE)
    entries = self_entries(own, signature, alone=not replaced) if own else []
    entries += recurrent_entries(replaced)
    logits = ports.output("logits", "logits", "generate.logits")
    if logits is None:
        where = decoder.mapping("outputs").at("logits")
        report.refused(decoder.file, where, "the graph has no output of this name", "name the output with the logits")
    _check_layers(decoder, entries, report)
    kv = [_with_geometry(decoder, entry, signature, report) for entry in entries]
    _check_window(decoder, entries, signature, report)
    inputs |= _lengths(source, file, ports)
    ports.refuse_rest()
    for leaf in report.uncovered(decoder):
        if leaf.path.rpartition(".")[2] in _FROM_GRAPH:
            report.dropped(leaf.file, leaf.path, "the graph has what it needs of it")
    session = read_session(decoder, report)
    component = ComponentText("decoder", file, [*kv, *(entry.fields for entry in extra)], session)
    return DecoderPart(component, inputs, logits.name if logits else "", embeds.name if embeds else None, signature)


def update_of(part: DecoderPart) -> str:
    """How the decoder's own cache is written; "" when it has none."""
    return next((str(entry["update"]) for entry in part.component.kv if entry["update"] != "replace"), "")


def _loop_inputs(decoder: ConfigNode, ports: PartPorts, report: ImportReport) -> dict[str, str]:
    found = {}
    for nominal, (default, value) in LOOP_INPUTS.items():
        port = ports.input(nominal, default, value)
        if port is None:
            continue
        found[port.name] = value
        if port.shape is not None and len(port.shape) != _RANK:
            where = decoder.mapping("inputs").at(nominal)
            message = f"the port '{port.name}' has {len(port.shape)} axes where {_RANK} are known"
            hint = "no loop here can run rules for positions on several axes (time, row, column), nor masks of several"
            report.refused(decoder.file, where, message, hint)
    return found


def _lengths(source: SourceFolder, file: str, ports: PartPorts) -> dict[str, str]:
    """Lengths that attention operators read, by which of their inputs they are: no name says what they count."""
    if not ports.unfed:
        return {}
    readers = read_facts(source.path, file).readers
    found = {}
    for port in ports.unfed:
        meanings = {_BY_OPERATOR[reader] for reader in readers.get(port.name, ()) if reader in _BY_OPERATOR}
        meaning = meanings.pop() if len(meanings) == 1 else None
        if meaning is not None and port.shape is not None and len(port.shape) == meaning[1]:
            found[port.name] = meaning[0]
            ports.feed(port, meaning[0])
    return found


def _check_layers(decoder: ConfigNode, entries: Sequence[StateEntry], report: ImportReport) -> None:
    key = "num_hidden_layers"
    if key not in decoder:
        return
    said, there = decoder.integer(key), {layer for entry in entries for layer in entry.layers}
    if said == len(there):
        report.mapped(decoder.file, decoder.at(key), "components.decoder.kv.layers: as the graph has")
    elif not there:
        report.dropped(decoder.file, decoder.at(key), "the graph has no state, so it runs once for each token alone")
    else:
        message = f"is {said}; the graph has state for {len(there)} layers"
        report.refused(decoder.file, decoder.at(key), message, "see to the patterns of past and present names")


def _with_geometry(
    decoder: ConfigNode, entry: StateEntry, signature: GraphSignature, report: ImportReport
) -> dict[str, Any]:
    """The entry with what the graph leaves open; what it fixes must be what the file says."""
    if entry.fields["update"] == "replace":
        return entry.fields
    heads = "num_key_value_heads" if "num_key_value_heads" in decoder else "num_attention_heads"
    fields = dict(entry.fields)
    for key, name, axis in ((heads, "heads", 1), ("head_size", "head_dim", 3)):
        if key not in decoder:
            continue
        said = decoder.integer(key, least=1)
        sizes = {size for port in entry.ports for size in _size(signature.inputs[port], axis)}
        if not sizes:
            fields[name] = said
        if sizes <= {said}:
            report.mapped(decoder.file, decoder.at(key), f"components.decoder.kv.{name}: as the graph has")
        else:
            shown = ", ".join(map(str, sorted(sizes)))
            report.dropped(decoder.file, decoder.at(key), f"the graph's own count: {shown}, not {said}")
    return fields


def _size(port: Port, axis: int) -> list[int]:
    """The fixed size of an axis of keys or values [batch, heads, length, size], if it is one."""
    if port.shape is None or len(port.shape) != _KV_RANK:
        return []
    size = port.shape[axis]
    return [size] if isinstance(size, int) else []


def _check_window(
    decoder: ConfigNode, entries: Sequence[StateEntry], signature: GraphSignature, report: ImportReport
) -> None:
    """A sliding window is right when the graph's own operators have it: then the cache follows them."""
    node = decoder.get("sliding_window")
    if node is None:
        return
    size = node.integer("window_size", least=1)
    only = set(node.integers("layers")) or {layer for entry in entries for layer in entry.layers}
    ports = [
        (layer, port)
        for entry in entries
        if entry.fields["update"] != "replace"
        for index, port in enumerate(entry.ports)
        for layer in (entry.layers[index % len(entry.layers)],)
    ]
    if ports and all(signature.windows.get(port) == size for layer, port in ports if layer in only):
        report.mapped(node.file, node.path, f"the window of {size} tokens that the graph's attention has")
    elif not node.boolean("slide_key_value_cache", True):
        report.dropped(node.file, node.path, "it only cuts the prompt: the cache does not slide")
    else:
        message = f"a cache that forgets all but {size} tokens although the graph attends to what it is given"
        report.refused(node.file, node.path, message, "export with attention that has the window (local_window_size)")

"""``model`` and the ``io`` of each graph: every key has a row, and ports are looked up in the graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.workflow.document import DOCUMENT, Document
from genai_pipeline.importers.workflow.older import port_names
from genai_pipeline.problems import nearest

Side = Literal["input", "output"]
_GRAPHS: Final = "the graphs say it"
_CHECKED: Final = "checked against the graphs' ports"
_CONTEXT: Final = "max_sequence_length"
_MODEL: Final[Mapping[str, str]] = {
    "name": "the package has a name of its own",
    "type": _GRAPHS,
    "architecture": _GRAPHS,
    "vocab_size": _GRAPHS,
    "attention": f"{_GRAPHS}; a window is held against them",
    "mixture_of_experts": _GRAPHS,
    "speculative": "drafts change no answer",
    "runtime_configurable": "options of who loads the package",
}
_IO: Final = dict.fromkeys(
    ("sequence_source", "kv_ownership", "kv_layout", "kv_update", "aliasing", "state_groups"), _GRAPHS
)
_PORT: Final[Mapping[str, Side]] = {
    **dict.fromkeys(("token_input", "inputs_embeds_input", "attention_mask_input", "position_ids_input"), "input"),
    **dict.fromkeys(("encoder_hidden_states_input", "audio_features_input"), "input"),
    **dict.fromkeys(("write_indices_input", "kv_sequence_length_input"), "input"),
    **dict.fromkeys(("logits_output", "hidden_output"), "output"),
}
_PORTS: Final[Mapping[str, Side]] = {
    **dict.fromkeys(("inputs", "kv_inputs", "cross_kv_inputs", "key_cache_inputs", "value_cache_inputs"), "input"),
    **dict.fromkeys(("outputs", "kv_outputs", "key_cache_outputs", "value_cache_outputs"), "output"),
    "cross_kv_outputs": "output",
}
_OF_ANY: Final = "cross_kv_outputs"  # an encoder may give them to the decoder that names them
_STATIC, _PAIRS, _OPTIONAL = "static_cache", "state_pairs", "optional_inputs"
_HINT: Final = "take it away where it changes no answer"


@dataclass(frozen=True, slots=True)
class _Ports:
    """Ports by side: ``own`` of the graphs that an ``io`` is about, ``every`` of all graphs."""

    own: Mapping[Side, frozenset[str]]
    every: Mapping[Side, frozenset[str]]


def report_model(document: Document, parts: Mapping[str, Part], report: ImportReport) -> None:
    """Rows for the keys of ``model``, and of ``io`` there and in each of ``pipeline.models``.

    A key that nothing knows and a port that no graph has are refused. Raises ImportModelError for values of no use.
    """
    model, every = document.root.mapping("model"), _ports(parts)
    for key in model.keys:
        if key == "io":
            _report_io(model.mapping(key), _Ports(every, every), report)
        elif key == _CONTEXT:
            report.mapped(DOCUMENT, model.at(key), "limits.context_length")
        elif key in _MODEL:
            report.dropped(DOCUMENT, model.at(key), _MODEL[key])
        else:
            _unknown(model, key, (*_MODEL, _CONTEXT, "io"), report)
    models = document.root.mapping("pipeline").mapping("models")
    for name, part in parts.items():
        if "io" in models.mapping(name):
            _report_io(models.mapping(name).mapping("io"), _Ports(_ports({name: part}), every), report)


def _ports(parts: Mapping[str, Part]) -> dict[Side, frozenset[str]]:
    inputs = frozenset(name for part in parts.values() for name in part.facts.inputs)
    return {"input": inputs, "output": frozenset(name for part in parts.values() for name in part.facts.outputs)}


def _report_io(io: ConfigNode, ports: _Ports, report: ImportReport) -> None:
    for key in io.keys:
        if io.value[key] is None:
            report.dropped(DOCUMENT, io.at(key), "says nothing")
        elif key == _STATIC:
            _report_io(io.mapping(key), ports, report)
        elif key in _IO:
            report.dropped(DOCUMENT, io.at(key), _IO[key])
        elif key in _PORT or key in _PORTS or key in (_PAIRS, _OPTIONAL):
            _report_ports(io, key, ports, report)
        else:
            _unknown(io, key, (*_IO, *_PORT, *_PORTS, _STATIC, _PAIRS, _OPTIONAL), report)
    for key in ("kv_inputs", "cross_kv_inputs", "key_cache_inputs", "value_cache_inputs"):
        other = key.replace("inputs", "outputs")
        taken, given = len(port_names(io, key)), len(port_names(io, other))
        if taken != given and key in io and other in io:
            report.refused(DOCUMENT, io.at(key), f"has {taken} names, and {io.at(other)} {given}", "they are pairs")


def _report_ports(io: ConfigNode, key: str, ports: _Ports, report: ImportReport) -> None:
    """One row for a key that names ports; a refusal for each name that no graph has."""
    known = ports.every if key == _OF_ANY else ports.own
    lacking = [(side, name) for side, name in _named(io, key) if name not in known[side]]
    for side, name in lacking:
        hint = nearest(name, known[side]) or f"name an {side} of the graph"
        report.refused(DOCUMENT, io.at(key), f"names '{name}', which is no {side} of the graph", hint)
    if not lacking:
        report.dropped(DOCUMENT, io.at(key), _CHECKED)


def _named(io: ConfigNode, key: str) -> Iterator[tuple[Side, str]]:
    """The ports that a key names, each with its side."""
    if key in _PORT:
        yield _PORT[key], io.text(key)
    elif key in _PORTS:
        yield from ((_PORTS[key], name) for name in port_names(io, key))
    elif key == _OPTIONAL:
        yield from (("input", name) for name in io.mapping(key).keys)
    else:
        for pair in io.need(key).items():
            yield from (("input", pair.text("input")), ("output", pair.text("output")))


def _unknown(node: ConfigNode, key: str, known: tuple[str, ...], report: ImportReport) -> None:
    report.refused(DOCUMENT, node.at(key), "is not mapped", nearest(key, known) or _HINT)

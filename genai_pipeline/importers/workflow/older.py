"""The older form: ``model.io`` with pairs of state, ``pipeline`` with models, the edges between them and a strategy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.structure.joining import ModelParts
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.workflow.document import DOCUMENT, Document
from genai_pipeline.importers.workflow.steps import Program

_STRATEGIES = ("autoregressive", "single_pass", "composite")
_HINT = "write the package by hand: docs/metadata.md"
_PAIRS = (("kv_inputs", "kv_outputs"), ("cross_kv_inputs", "cross_kv_outputs"))
_STATIC = (("key_cache_inputs", "key_cache_outputs"), ("value_cache_inputs", "value_cache_outputs"))


def state_pairs(document: Document, program: Program, component: str) -> dict[str, str]:
    """Past port -> present port as the document wires them; empty where it does not say."""
    if document.form == "workflow":
        return program.pairs(component)
    models = document.root.mapping("pipeline").mapping("models")
    io = models.mapping(component).mapping("io") if models.keys else document.root.mapping("model").mapping("io")
    found: dict[str, str] = {}
    for where, keys in ((io, _PAIRS), (io.mapping("static_cache"), _STATIC)):
        for inputs, outputs in keys:
            found |= dict(zip(port_names(where, inputs), port_names(where, outputs), strict=False))
    pairs = io.get("state_pairs")
    if pairs is not None:
        pairs.checked(isinstance(pairs.value, list), "a list of pairs of ports")
    found |= {pair.text("input"): pair.text("output") for pair in (pairs.items() if pairs is not None else ())}
    return found


def check_pipeline(
    document: Document,
    parts: Mapping[str, Part],
    joined: ModelParts,
    report: ImportReport,
    others: Iterable[tuple[str, str]] = (),
) -> None:
    """Refuse strategies without a counterpart, and edges that the graphs' ports do not say too (``others``: more)."""
    pipeline = document.root.mapping("pipeline")
    for strategy in _strategies(pipeline.get("strategy")):
        kind = strategy.text("kind")
        if kind not in _STRATEGIES:
            report.refused(DOCUMENT, strategy.path, f"the strategy '{kind}' has no counterpart", _HINT)
    known = {*_edges(parts, joined), *others}
    edges = pipeline.get("dataflow")
    for edge in edges.items() if edges is not None else ():
        pair = (edge.text("from"), edge.text("to"))
        source = _misnamed(pair, known, parts)
        if source is not None:
            why = f"{source}, of which {pair[0].rpartition('.')[0]} is the only giver and has no output of that name"
            report.mapped(DOCUMENT, edge.at("from"), why)
        elif pair not in known:
            why = f"{pair[0]} goes to {pair[1]} there, which does not follow from the ports"
            report.refused(DOCUMENT, edge.path, why, _HINT)


def _misnamed(pair: tuple[str, str], known: Iterable[tuple[str, str]], parts: Mapping[str, Part]) -> str | None:
    """What an edge means by a name that its giver's graph does not have: the one output that goes where the edge goes.

    Some exporters write the name of the taker's port on both sides.
    """
    giver, _, port = pair[0].partition(".")
    if giver not in parts or port in parts[giver].facts.outputs:
        return None
    fits = [source for source, target in known if target == pair[1] and source.startswith(f"{giver}.")]
    return fits[0] if len(fits) == 1 else None


def _strategies(strategy: ConfigNode | None) -> Iterator[ConfigNode]:
    """A strategy and those of its stages."""
    if strategy is None:
        return
    yield strategy
    stages = strategy.get("stages")
    for stage in stages.items() if stages is not None else ():
        yield from _strategies(stage.get("strategy"))


def _edges(parts: Mapping[str, Part], joined: ModelParts) -> Iterator[tuple[str, str]]:
    """The edges between the parts, as the document would write them."""
    names = {part.facts.file: name for name, part in parts.items()}
    if joined.decoder is None:
        return
    decoder = names[joined.decoder.facts.file]
    if joined.encoder is not None:
        giver = names[joined.encoder.facts.file]
        yield from ((f"{giver}.{source}", f"{decoder}.{port}") for port, source in joined.sources.items())
        for past, family in joined.given.items():
            state = next(state for state in joined.decoder.states if state.past.pattern == past)
            yield from (
                (f"{giver}.{family.ports[key].name}", f"{decoder}.{port.name}")
                for key, port in state.past.ports.items()
            )
    if joined.embed is not None:
        port = joined.decoder.port_of("embeds")
        yield f"{names[joined.embed.facts.file]}.{joined.embed.rows[0].name}", f"{decoder}.{port}"


def port_names(io: ConfigNode, key: str) -> list[str]:
    """The ports that a list names, as texts or as mappings with a ``name``. Raises ImportModelError for others."""
    found = io.get(key)
    if found is None:
        return []
    found.checked(isinstance(found.value, list), "a list of names of ports")
    return [item.text("name") if isinstance(item.value, dict) else _name(item) for item in found.items()]


def _name(item: ConfigNode) -> str:
    return str(item.checked(isinstance(item.value, str) and item.value != "", "the name of a port").value)

"""Encoder-decoders (translation, summaries, transcripts): what an answer starts with, how long it may be, its defaults.

The document says none of it. The start token and the defaults of answers stand in the model's generation_config.json or
config.json, which exporters leave out. A graph that picks rows of a table by its positions has as many as the table;
one that computes distances has no longest text, so that the bound is a choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.graph.onnx_file import read_outline
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.generation_config import (
    ANSWER_KEYS,
    START,
    answer_defaults,
    generation_defaults,
    loop_fields,
)
from genai_pipeline.importers.shared.generation_config import FILE as GENERATION
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.joining import ModelParts
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.texts import Texts
from genai_pipeline.importers.workflow.document import DOCUMENT

if TYPE_CHECKING:
    import onnx

CONTEXT: Final = 1024  # tokens of an answer where nothing bounds them
_CONFIG: Final = "config.json"
_MATRIX: Final = 2
# Nodes between a count and the row of a table that it picks; others bound what they let through.
_MOVES: Final = frozenset(
    {"Add", "Sub", "Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand", "Slice", "Concat"}
)
_ROTARY: Final = frozenset({"RotaryEmbedding", "GroupQueryAttention"})  # they look angles up


def translates(joined: ModelParts) -> bool:
    """Whether a decoder answers what an encoder has read."""
    return joined.encoder is not None and joined.decoder is not None


def with_answers(folder: SourceFolder, joined: ModelParts, texts: Texts, report: ImportReport) -> Texts:
    """The texts with a start token and a context. What nothing says is refused."""
    if texts.start is None:
        why = "missing: which token an answer starts with is not said"
        hint = f"put the model's {GENERATION} or {_CONFIG} into the folder"
        report.refused(GENERATION, START, f"{why}, nor in {_CONFIG}", hint)
    else:
        file = GENERATION if START in folder.optional_json(GENERATION) else _CONFIG
        report.mapped(file, START, f"stages.generate.prompt: {texts.start}")
    start = texts.start or next(iter(texts.choices), "<s>")
    return replace(texts, start=start, context=texts.context or _context(folder, joined, report))


def defaults_of_answers(folder: SourceFolder, report: ImportReport) -> dict[str, Any]:
    """Defaults of generation_config.json, where the folder has it."""
    config = folder.optional_json(GENERATION)
    if not config.keys:
        return {}
    loop_fields(config, report)  # the loop has them from the texts
    return {**generation_defaults(config, report, ANSWER_KEYS), **answer_defaults(config, report)}


def _context(folder: SourceFolder, joined: ModelParts, report: ImportReport) -> int | None:
    """As many tokens as the decoder has positions, or a bound by choice where it looks none up; None: not known."""
    decoder = joined.decoder
    assert decoder is not None
    if (rows := learnt_positions(folder, decoder)) is not None:
        report.mapped(decoder.facts.file, decoder.port_of("positions") or "", f"limits.context_length: {rows}")
        return rows
    if looks_positions_up(folder, decoder):
        return None
    why = "missing, and the decoder looks no positions up, which bounds nothing"
    report.mapped(DOCUMENT, "model.max_sequence_length", f"limits.context_length: {CONTEXT}, by choice: {why}")
    return CONTEXT


def learnt_positions(folder: SourceFolder, decoder: Part) -> int | None:
    """How many positions the decoder has learnt: rows of the table that its port of positions picks from."""
    port = decoder.port_of("positions")
    graph = read_outline(folder.path / decoder.facts.file, folder.path).graph
    sizes = {tensor.name: tensor.dims[0] for tensor in graph.initializer if len(tensor.dims) >= _MATRIX}
    picks = (node.input[0] for node in graph.node if node.op_type == "Gather" and port in node.input[1:])
    return next((sizes[name] for name in picks if name in sizes), None)


def looks_positions_up(folder: SourceFolder, part: Part) -> bool:
    """Whether a count of tokens picks rows of a table of weights, so that the table's rows bound it."""
    graph = read_outline(folder.path / part.facts.file, folder.path).graph
    tables = {tensor.name for tensor in graph.initializer if len(tensor.dims) >= _MATRIX}
    makers = {output: node for node in graph.node for output in node.output}
    picks = (node.input[1] for node in graph.node if node.op_type == "Gather" and node.input[0] in tables)
    counts = {output for node in graph.node if node.op_type == "Range" for output in node.output}
    counts.add(part.port_of("positions") or "")
    looked_up = any(not counts.isdisjoint(_made_of(name, makers)) for name in picks)
    return looked_up or any(node.op_type in _ROTARY for node in graph.node)


def _made_of(name: str, makers: Mapping[str, onnx.NodeProto]) -> Iterator[str]:
    """A value and those that it is made of by moving and shifting numbers; what bounds them ends the way."""
    waiting, seen = [name], set[str]()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        yield value
        if value in makers and makers[value].op_type in _MOVES:
            waiting.extend(makers[value].input)

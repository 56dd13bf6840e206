"""From a folder that Optimum or transformers.js laid out to a package folder: read, check everything, then write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_pipeline.errors import ImportModelError
from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.importers.check import Check, unchecked
from genai_pipeline.importers.optimum import decoder, embedding, seq2seq, vision, whisper
from genai_pipeline.importers.optimum.layout import Layout, find_layout
from genai_pipeline.importers.optimum.source import Source
from genai_pipeline.importers.package_writer import check_free, new_package, package_name, write_text
from genai_pipeline.importers.progress import Progress, silent
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.metadata_document import document
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.problems import one_of


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of model: how its graphs are recognised and what makes its metadata."""

    title: str
    recognises: Callable[[Layout, dict[str, GraphSignature]], bool]
    fields: Callable[[Source], dict[str, Any]]
    comment: str


def import_optimum(
    source: Path,
    target: Path,
    *,
    precision: str | None = None,
    name: str | None = None,
    progress: Progress = silent,
    check: Check = unchecked,
) -> ImportReport:
    """Turns the folder ``source`` into the package folder ``target``; the report has a row for every key and file.

    ``precision`` is that of the graphs' suffix (fp32, fp16, quantized, int8, uint8, q4, q4f16, bnb4); None takes the
    first that every graph has. Weights are linked, not copied. ``check`` looks at the package before it gets its name.
    Raises ``ImportModelError`` before anything is written; ``ImportRefusedError`` lists every key and port that would
    change the answer and cannot be mapped.
    """
    title = package_name(name, target)
    check_free(target)
    progress(f"reading {source.name}", 0, 0)
    folder = SourceFolder(source)
    layout = find_layout(folder.onnx_files(), precision)
    if layout is None:
        found = ", ".join(folder.onnx_files()) or "no ONNX files at all"
        hint = "files are named model.onnx, decoder_model_merged.onnx, ... in the folder or in onnx/ below it"
        raise ImportModelError(f"{source}: no ONNX file has a name of this format; there are {found}", hint=hint)
    model = Source.of(folder, layout)
    shape = _shape(source, layout, {role: folder.signature(file) for role, file in layout.graphs.items()})
    fields = {"name": title, "summary": f"{title}, {layout.precision} weights", **shape.fields(model)}
    model.close()
    with new_package(target) as made:
        write_text(made / "inference_metadata.yaml", document(shape.comment, fields))
        folder.link(model.files, made)
        for graph in dict.fromkeys(_graphs(fields)):
            progress(f"linking {graph}", 0, 0)
            folder.link_graph(graph, made)
        model.report.write(made)
        check(made, str(source), model.report.rows)
    return model.report


def _shape(source: Path, layout: Layout, signatures: dict[str, GraphSignature]) -> Shape:
    for shape in SHAPES:
        if shape.recognises(layout, signatures):
            return shape
    found = [f"{layout.graphs[role]} ({_ports(graph)})" for role, graph in signatures.items()]
    known = "; ".join(shape.title for shape in SHAPES)
    raise ImportModelError(
        f"{source}: these graphs make no model of a known shape:\n  " + "\n  ".join(found), hint=f"known are: {known}"
    )


def _ports(graph: GraphSignature) -> str:
    return f"{one_of(list(graph.inputs), 6)} -> {one_of(list(graph.outputs), 6)}"


def _graphs(fields: dict[str, Any]) -> Iterable[str]:
    for component in fields["components"].values():
        model = component["model"]
        yield from model.values() if isinstance(model, dict) else (model,)


SHAPES: tuple[Shape, ...] = (
    Shape(
        "a text decoder: input_ids and past in, logits out", decoder.is_decoder, decoder.decoder_fields, decoder.COMMENT
    ),
    Shape(
        "sentence embeddings: input_ids in, last_hidden_state or sentence_embedding out",
        embedding.is_embedding,
        embedding.embedding_fields,
        embedding.COMMENT,
    ),
    Shape(
        "encoder and decoder: input_ids in, last_hidden_state between them, logits out",
        seq2seq.is_encoder_decoder,
        seq2seq.seq2seq_fields,
        seq2seq.COMMENT,
    ),
    Shape(
        "speech recogniser: input_features in, last_hidden_state between encoder and decoder, logits out",
        whisper.is_whisper,
        whisper.whisper_fields,
        whisper.COMMENT,
    ),
    Shape(
        "vision and language: pixel_values and input_ids become inputs_embeds, logits out",
        vision.is_vision_language,
        vision.vision_fields,
        vision.COMMENT,
    ),
)

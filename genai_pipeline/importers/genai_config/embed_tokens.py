"""``model.embedding`` of genai_config.json: the graph that turns tokens into what the decoder takes.

With pictures or sounds it also puts their rows in the places of one token, counted from the start of the prompt; here
it is given no rows and no such token (``mixers``), and ``splice`` puts the rows in.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.decoder import DecoderPart
from genai_pipeline.importers.genai_config.ports import PartPorts
from genai_pipeline.importers.genai_config.session_options import read_session
from genai_pipeline.importers.mixers import empty_axes, row_changes
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.types import numpy_dtype

NAME: Final = "embedding"
EMBEDS: Final = "embeds"  # the value that the decoder takes
_FEATURES: Final[Mapping[str, str]] = {"images": "image_features", "audio": "audio_features"}  # by input of the package
_RANKS = (2, 3)  # of rows: [rows, width], or with an axis for pictures in front


@dataclass(frozen=True, slots=True)
class EmbeddingPart:
    """The graph and its ports; ``rows``: the ports of features, by the name of an input of the package."""

    model: str
    session: dict[str, Any]
    tokens: str
    embeds: str
    rows: Mapping[str, Port] = field(default_factory=dict)
    width: int = 0  # of a row

    def component(self) -> dict[str, Any]:
        """The entry under ``components``. No rows are the same for all requests of a run."""
        found: dict[str, Any] = {"model": self.model}
        if self.rows:
            found["no_batch_axis"] = [port.name for port in self.rows.values()]
        return {**found, **({"session": self.session} if self.session else {})}

    def stage(self, tokens: str, embeds: str) -> dict[str, Any]:
        """The stage that gives the value ``embeds`` for the value ``tokens``."""
        nothing = {port.name: f"data.{_none(name)}" for name, port in self.rows.items()}
        return {"run": NAME, "inputs": {self.tokens: tokens, **nothing}, "outputs": {self.embeds: embeds}}

    def data(self) -> dict[str, Any]:
        """The entries under ``data``: no rows, for each port that takes some."""
        return {_none(name): {"file": f"{_none(name)}.npy"} for name in self.rows}

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The files that ``data`` names."""
        for name, port in self.rows.items():
            stream = io.BytesIO()
            lead = empty_axes(port) or (0,)  # refused before anything is written
            np.save(stream, np.zeros((*lead, self.width), numpy_dtype(port.dtype)), allow_pickle=False)
            yield f"{_none(name)}.npy", stream.getvalue()


def read_embedding(
    source: SourceFolder, model: ConfigNode, decoder: DecoderPart, report: ImportReport
) -> EmbeddingPart | None:
    """Reads, maps and reports the whole part; None where there is none. It has the decoder's session if no own."""
    part = model.mapping(NAME)
    if "filename" not in part:
        if decoder.embeds is not None:
            hint = "name the graph that makes them in model.embedding.filename"
            report.refused(model.file, model.at(NAME), "is missing: the decoder takes embeddings", hint)
        return None
    file = part.text("filename")
    signature = source.signature(file)
    report.mapped(part.file, part.at("filename"), f"components.{NAME}.model")
    ports = PartPorts(part, signature, report)
    tokens = ports.input("input_ids", "input_ids", "loop.tokens")
    embeds = ports.output("inputs_embeds", "inputs_embeds", "what the decoder takes")
    found = {name: ports.input(nominal, nominal, f"no rows: splice places those of {name}")
             for name, nominal in _FEATURES.items()}  # fmt: skip
    ports.refuse_rest()
    if tokens is None or embeds is None or decoder.embeds is None:
        message = "does not stand between tokens and decoder: a port is missing"
        report.refused(part.file, part.path, message, "see to the names of its inputs and outputs")
    rows = {name: port for name, port in found.items() if port is not None}
    width = _width(source, model, file, rows, report)
    session = read_session(part, report) if "session_options" in part else dict(decoder.component.session)
    if "run_options" in part:
        report.dropped(part.file, part.at("run_options"), "how runs are made is managed here")
    return EmbeddingPart(file, session, tokens.name if tokens else "", embeds.name if embeds else "", rows, width)


def decoder_stage(decoder: DecoderPart) -> dict[str, Any]:
    """The stage of a body that runs the decoder, on ``embeds`` where it takes embeddings."""
    embeds = {} if decoder.embeds is None else {decoder.embeds: EMBEDS}
    return {"run": "decoder", "inputs": {**decoder.inputs, **embeds}, "outputs": {decoder.logits: "logits"}}


def _width(source: SourceFolder, model: ConfigNode, file: str, rows: Mapping[str, Port], report: ImportReport) -> int:
    """The size of a row; refuses graphs that do more with rows than to put them in places."""
    width = 0
    for port in rows.values():
        shape = port.shape or ()
        if len(shape) not in _RANKS:
            report.refused(
                file, port.name, f"has {len(shape)} axes; rows of features have 2, or 3 with one for pictures"
            )
        elif empty_axes(port) is None:
            sizes = f"[{', '.join(str(size) or '?' for size in shape)}]"
            why = f"is {sizes}: it cannot be given no rows, which a prompt without pictures has"
            report.refused(file, port.name, why, "export the graph with an open axis of pictures or of rows")
        changes = row_changes(source, file, port.name)
        if changes:
            why = f"the graph changes the rows that it puts in places ({', '.join(changes)})"
            report.refused(file, port.name, why, "export the graph so that it places rows as they are")
        fixed = shape[-1] if shape and isinstance(shape[-1], int) else None
        width = fixed or model.need("decoder").integer("hidden_size", least=1)
    return width


def _none(name: str) -> str:
    """The name of the data that stands for no items of an input."""
    return f"no_{name}"

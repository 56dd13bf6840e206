"""The kinds of models that a document describes: told by their networks, each with what makes its metadata.

Kinds with pictures or sounds are made here; decoders, encoder-decoders and embedders follow from the graphs alone, as a
draft of ``init`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.metadata_document import document as metadata
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.texts import Texts
from genai_pipeline.importers.workflow import hearing, seeing
from genai_pipeline.importers.workflow.document import DOCUMENT, Document
from genai_pipeline.importers.workflow.profiles import PROFILES, normalizes, pooling, report_profiles
from genai_pipeline.importers.workflow.programs import PREPROCESSING

_MAPPED: Final = {
    PREPROCESSING: "preprocess",
    PROFILES: "stages and outputs",
    "package": "the tokenizer's files say it",
    "pipeline.vision": "inputs.images.placeholder: tokens and rows of a picture",
    "pipeline.positions": "positions count up by one, as the graph's port says",
}
_LINEAR: Final = "linear"
_HINT: Final = "write the package by hand: docs/metadata.md"


@dataclass(frozen=True, slots=True)
class Found:
    """A model with pictures or sounds. ``sight``: the networks of one that sees; None: it hears."""

    sight: seeing.Sight | None
    parts: Mapping[str, Part]

    @property
    def edges(self) -> frozenset[tuple[str, str]]:
        """The edges between its networks."""
        return frozenset(seeing.sight_edges(self.sight, self.parts)) if self.sight is not None else frozenset()

    def written(
        self, title: str, folder: SourceFolder, document: Document, texts: Texts, report: ImportReport
    ) -> tuple[str, Mapping[str, Any]]:
        """The metadata, and the JSON files that it needs; what it would leave open is refused in the report."""
        if self.sight is not None:
            fields = seeing.seeing_fields(folder, document, self.parts, self.sight, texts, report)
            return metadata(seeing.COMMENT, {"name": title, **fields}), {}
        heard = hearing.hearing_fields(folder, document, self.parts, report)
        return metadata(hearing.COMMENT, {"name": title, **heard.fields}), heard.files


def find_media(parts: Mapping[str, Part]) -> Found | None:
    """A model with pictures or sounds, when the networks are those of one that packages can say."""
    sight = seeing.find_sight(parts)
    return Found(sight, parts) if sight is not None or hearing.hears(parts) else None


def with_profiles(document: Document, texts: Texts, report: ImportReport) -> Texts:
    """What a profile says about vectors, in place of what files say."""
    report_profiles(document.root, report)
    kind, unit = pooling(document.root, report), normalizes(document.root)
    return replace(texts, pooling=kind or texts.pooling, normalized=texts.normalized if unit is None else unit)


def mapped_keys(document: Document, found: Found | None, report: ImportReport) -> dict[str, str]:
    """Keys that the package says in another way, and how. Programs and positions of other kinds stay unmapped."""
    kept = dict(_MAPPED)
    if found is None:
        del kept[PREPROCESSING], kept["pipeline.vision"]
    positions = document.root.mapping("pipeline").mapping("positions")
    generation = positions.text("generation", "no rule")
    if "positions" in document.root.mapping("pipeline") and generation != _LINEAR:
        del kept["pipeline.positions"]
        why = f"are made by '{generation}' on {positions.integer('rank', 1)} axes, which has no counterpart"
        report.refused(DOCUMENT, positions.at("generation"), why, _HINT)
    return kept

"""The document as it is: read within bounds, told apart by its form, its components by name.

Two forms are known: ``pipeline.workflow`` (schema_version v1 or 1.0), a program of steps over typed values, and the
older one with ``model.io``, and ``pipeline.models`` where there is more than one graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.metadata.yaml_reader import read

DOCUMENT: Final = "inference_metadata.yaml"
VERSIONS: Final = ("v1", "1.0")
# Adapters that run the document's own program for pictures or sounds.
ADAPTERS: Final = {"onnx-genai.image-preprocess": "image", "onnx-genai.audio-preprocess": "audio"}
_OLD_GRAPH: Final = "model.onnx"
Form = Literal["workflow", "model.io"]


@dataclass(frozen=True, slots=True)
class Document:
    """``graphs``: component -> ONNX file."""

    root: ConfigNode
    form: Form
    graphs: Mapping[str, str]

    @property
    def workflow(self) -> ConfigNode:
        """``pipeline.workflow``; empty in the older form."""
        return self.root.mapping("pipeline").mapping("workflow")


def is_document(folder: Path) -> bool:
    """Whether the folder's metadata file is such a document, and not that of a package."""
    if not (folder / DOCUMENT).is_file():
        return False
    node, _ = read(folder / DOCUMENT, name=DOCUMENT)
    keys = node.mapping if node is not None else {}
    return "stages" not in keys and not {"pipeline", "model"}.isdisjoint(keys)


def read_document(folder: SourceFolder, report: ImportReport) -> Document:
    """The document of a folder. Raises ImportModelError for one that is damaged or of another form."""
    path = folder.need(DOCUMENT, "it is what a folder of this kind has")
    node, faults = read(path, name=DOCUMENT)
    if node is None or any(fault.severity == "error" for fault in faults):
        first = faults[0]
        raise ImportModelError(f"{DOCUMENT}: line {first.at.line}: {first.message}", hint=first.hint)
    root = ConfigNode(DOCUMENT, "", node.plain()).checked(isinstance(node.value, dict), "a mapping")
    if "workflow" in root.mapping("pipeline"):
        return Document(root, "workflow", _workflow_graphs(root, report))
    if "stages" in root and "components" in root:
        raise ImportModelError(f"{folder.path}: is a package already", hint=f"genai-pipeline validate {folder.path}")
    if {"io", "attention"} & set(root.mapping("model").keys) or "models" in root.mapping("pipeline"):
        return Document(root, "model.io", _model_graphs(root, report))
    raise ImportModelError(
        f"{DOCUMENT}: has neither pipeline.workflow nor model.io", hint="write a draft from the graphs: init --force"
    )


def _workflow_graphs(root: ConfigNode, report: ImportReport) -> dict[str, str]:
    version = root.text("schema_version", VERSIONS[0])
    if version not in VERSIONS:
        hint = f"known are {' and '.join(VERSIONS)}"
        report.refused(DOCUMENT, "schema_version", f"is {version}, which this version does not know", hint)
    found = {}
    for component in root.mapping("pipeline").mapping("workflow").mapping("components").items():
        name = component.path.rpartition(".components.")[2]
        made = component.mapping("implementation")
        kind = made.text("kind")
        if kind == "onnx":
            found[name] = made.text("artifact")
        elif kind == "adapter" and made.text("abi", "") in ADAPTERS:
            report.mapped(DOCUMENT, made.path, f"preprocess: {ADAPTERS[made.text('abi')]}")
        else:
            what = f"the component '{name}' is no graph but {kind} '{made.text('abi', 'of no name')}'"
            report.refused(DOCUMENT, made.path, what, "only ONNX graphs can be components")
    return found


def _model_graphs(root: ConfigNode, report: ImportReport) -> dict[str, str]:
    models = root.mapping("pipeline").mapping("models")
    if not models.keys:
        report.mapped(DOCUMENT, "model", f"components.decoder: {_OLD_GRAPH}")
        return {"decoder": _OLD_GRAPH}
    found = {}
    for model in models.items():
        name = model.path.rpartition(".models.")[2]
        found[name] = model.text("filename")
        report.mapped(DOCUMENT, model.path, f"components: {found[name]}")
    return found

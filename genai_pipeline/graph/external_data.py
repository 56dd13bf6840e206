"""Where a model's weights lie: our own rule for external data, checked before any of those files is opened.

A location is relative to the model file and follows the rule for every file of a package (``metadata.paths``). ONNX
Runtime has a stricter rule about links; ``loadable_graph`` gives it a graph whose locations are already resolved, so
honest hub caches load.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genai_pipeline.errors import GraphFileError, PackagePathError
from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.onnx_file import ExternalTensor
from genai_pipeline.metadata.paths import resolve_inside

if TYPE_CHECKING:
    import onnx_ir as ir

SHOWN_TENSORS = 3  # named in a message; the rest are counted


@dataclass(frozen=True, slots=True)
class DataFault:
    """One thing wrong with a file of weights: a problem code, what is wrong naming tensors, what to do."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ExternalData:
    """The resolved file of each location of a model, and what is wrong with the others."""

    files: Mapping[str, Path]
    faults: tuple[DataFault, ...]


@dataclass(frozen=True, slots=True)
class LoadableGraph:
    """What a session is created from: a file or bytes, and the folder that external locations are relative to.

    ``folder`` is the value for ``session.model_external_initializers_file_folder_path`` (None: leave it alone).
    """

    source: Path | bytes
    folder: str | None = None


def check_external_data(path: Path, root: Path) -> tuple[DataFault, ...]:
    """Every fault of the external data of the ONNX file at ``path``; raises GraphFileError if it cannot be read."""
    return scan_external_data(path, root).faults


def scan_external_data(path: Path, root: Path) -> ExternalData:
    """Resolve and check every external location of a file without opening any. Raises GraphFileError for the file."""
    by_location: dict[str, list[ExternalTensor]] = {}
    for tensor in onnx_file.external_tensors(onnx_file.read_outline(path, root)):
        by_location.setdefault(tensor.location, []).append(tensor)
    files: dict[str, Path] = {}
    faults: list[DataFault] = []
    for location, tensors in by_location.items():
        found = _resolve(location, path.parent, root, tensors)
        if isinstance(found, DataFault):
            faults.append(found)
        else:
            files[location] = found
            faults += _range_faults(location, found.stat().st_size, tensors)
    return ExternalData(files, tuple(faults))


def load_model(path: Path, root: Path) -> ir.Model:
    """The model at ``path`` for rewriting or saving elsewhere, its external data checked. Raises GraphFileError."""
    return onnx_file.read_model(path, root, _checked_files(path, root))


def loadable_graph(path: Path, root: Path, model: ir.Model | None = None) -> LoadableGraph:
    """What to give ONNX Runtime for the file at ``path``, or for ``model``: that file, loaded here and rewritten.

    A file without links and rewrites is loaded as it is. Otherwise locations become relative to the top of the file
    system: the one folder that always holds both package and blob folder. Raises GraphFileError.
    """
    files = _checked_files(path, root)
    if model is None:
        if not any(_is_linked(path.parent / location) for location in files):
            return LoadableGraph(path)
        model = onnx_file.read_model(path, root, files)
    anchor = path.resolve().anchor
    return LoadableGraph(onnx_file.model_bytes(model, anchor), anchor if files else None)


def write_beside_links(graph: LoadableGraph, path: Path, root: Path, folder: Path) -> Path:
    """Write the bytes of a graph made from ``path`` into ``folder``, with a link where it expects each file of weights.

    For runtimes that look for weights beside the model only, and infer no shapes themselves. Raises GraphFileError.
    """
    assert isinstance(graph.source, bytes)
    for file in _checked_files(path, root).values():
        link = folder / file.relative_to(file.anchor)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(file)
    written = folder / "model.onnx"
    written.write_bytes(onnx_file.with_shapes(graph.source))
    return written


def _checked_files(path: Path, root: Path) -> Mapping[str, Path]:
    """The resolved file of every location; raises GraphFileError for the first fault."""
    data = scan_external_data(path, root)
    for fault in data.faults:
        raise GraphFileError(fault.message, problem=fault.code, hint=fault.hint)
    return data.files


def _resolve(location: str, folder: Path, root: Path, tensors: list[ExternalTensor]) -> Path | DataFault:
    """The regular file a location names, or why it may not be used."""
    try:
        return resolve_inside(root, location, folder=str(folder))
    except PackagePathError as error:
        code = error.problem.replace("path.", "weights.")
        return DataFault(code, f"{_names(tensors)}: {error.message}", error.hint)


def _range_faults(location: str, size: int, tensors: Iterable[ExternalTensor]) -> list[DataFault]:
    """Tensors of one file whose bytes are not all there, or are not as many as their shape needs."""
    cut: list[ExternalTensor] = []
    odd: list[ExternalTensor] = []
    for tensor in tensors:
        length = tensor.declared if tensor.declared is not None else tensor.nbytes or 0
        if tensor.offset < 0 or length < 0 or (tensor.nbytes is not None and length != tensor.nbytes):
            odd.append(tensor)
        elif tensor.offset + length > size:
            cut.append(tensor)
    faults: list[DataFault] = []
    if cut:
        end = max(t.offset + (t.declared if t.declared is not None else t.nbytes or 0) for t in cut)
        message = f"{_names(cut)}: the file '{location}' has {size} bytes where {end} are needed"
        faults.append(DataFault("weights.cut", message, "the file is cut off: fetch it again"))
    if odd:
        first = odd[0]
        message = (
            f"{_names(odd)}: offset {first.offset} and length {first.declared} in '{location}' do not fit "
            f"the {first.nbytes} bytes of the tensor's shape and type"
        )
        faults.append(DataFault("weights.range", message))
    return faults


def _names(tensors: list[ExternalTensor]) -> str:
    """The tensors as the subject of a message."""
    shown = ", ".join(f"'{tensor.name}'" for tensor in tensors[:SHOWN_TENSORS])
    more = len(tensors) - SHOWN_TENSORS
    return f"tensor{'s' if len(tensors) > 1 else ''} {shown}{f' and {more} more' if more > 0 else ''}"


def _is_linked(path: Path) -> bool:
    """Whether the file or a folder above it is a link."""
    return path.resolve() != Path(os.path.abspath(path))

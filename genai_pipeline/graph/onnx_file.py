"""Reading and writing ONNX files: the one module that imports onnx and onnx_ir, both only when needed.

Reading a signature or an outline never touches weights: see ``onnx_wire``. Models that are changed are ``onnx_ir``
models whose weights stay memory-mapped in their files. Other modules that build or rewrite graphs use ``ir`` from here
(``onnx_file.ir.Node(...)``), so the libraries are loaded on first use. Longer than
most modules because it is the only home of both libraries.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_pipeline.errors import GraphFileError
from genai_pipeline.graph.onnx_wire import WireError, outline
from genai_pipeline.graph.random_nodes import random_nodes
from genai_pipeline.graph.signature import Dim, GraphSignature, Port, size_name
from genai_pipeline.graph.state_nodes import attention_windows, grown_states

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["ExternalTensor", "element_type", "external_tensors", "ir", "model_bytes", "read_model", "read_outline"]
__all__ += ["read_signature", "save_model", "signature_of"]

# TensorProto.DataType -> numpy-style name, and bits per element (0: no fixed size).
_TYPES: Mapping[int, tuple[str, int]] = {
    1: ("float32", 32), 2: ("uint8", 8), 3: ("int8", 8), 4: ("uint16", 16), 5: ("int16", 16), 6: ("int32", 32),
    7: ("int64", 64), 8: ("string", 0), 9: ("bool", 8), 10: ("float16", 16), 11: ("float64", 64), 12: ("uint32", 32),
    13: ("uint64", 64), 14: ("complex64", 64), 15: ("complex128", 128), 16: ("bfloat16", 16), 17: ("float8_e4m3fn", 8),
    18: ("float8_e4m3fnuz", 8), 19: ("float8_e5m2", 8), 20: ("float8_e5m2fnuz", 8), 21: ("uint4", 4), 22: ("int4", 4),
    23: ("float4_e2m1fn", 4), 24: ("float8_e8m0fnu", 8), 25: ("uint2", 2), 26: ("int2", 2),
}  # fmt: skip
_PROTOBUF_LIMIT = 2**31
_GIT_LFS = b"version https://git-lfs.github.com"


@dataclass(frozen=True, slots=True)
class ExternalTensor:
    """A tensor whose bytes lie in another file: ``location`` as written, bytes [offset, offset + nbytes) of it."""

    name: str
    location: str
    offset: int
    nbytes: int | None  # None: not known, the dtype has no fixed size
    declared: int | None  # the ``length`` written in the model, if any


def __getattr__(name: str) -> Any:
    """``ir``: the onnx_ir library, imported on first use."""
    if name == "ir":
        import onnx_ir

        return onnx_ir
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def element_type(dtype: str) -> ir.DataType:
    """The element type of a numpy-style name, which must be one."""
    import onnx_ir

    return onnx_ir.DataType(next(number for number, (name, _) in _TYPES.items() if name == dtype))


def read_signature(path: Path, root: Path) -> GraphSignature:
    """Ports, opset and metadata of the ONNX file at ``path`` inside ``root``. Raises GraphFileError."""
    return signature_of(read_outline(path, root))


def read_outline(path: Path, root: Path) -> onnx.ModelProto:
    """The model without large tensors' bytes; no other file is opened. Raises GraphFileError."""
    shown = _shown(path, root)
    try:
        with path.open("rb") as file:
            data = _map_outline(file.fileno(), shown)
    except OSError as error:
        problem = "model.missing" if isinstance(error, FileNotFoundError) else "model.unreadable"
        raise GraphFileError(f"{shown}: cannot be read: {error.strerror}", problem=problem) from error
    return _parse(data, shown)


def signature_of(model: onnx.ModelProto) -> GraphSignature:
    """The signature of a parsed model; initializers that are listed as inputs too are not ports."""
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    return GraphSignature(
        inputs={value.name: _port(value) for value in graph.input if value.name not in weights},
        outputs={value.name: _port(value) for value in graph.output},
        opset={entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        metadata={entry.key: entry.value for entry in model.metadata_props},
        windows=attention_windows(graph),
        grown=grown_states(graph),
        random_nodes=random_nodes(model),
    )


def node_dtypes(path: Path, root: Path, op_type: str, name: str) -> tuple[str, ...]:
    """Known dtypes of the inputs of the node with that operation and name; empty when there is no such node."""
    from onnx import shape_inference

    graph = shape_inference.infer_shapes(read_outline(path, root)).graph
    known = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info):
        known.setdefault(value.name, value.type.tensor_type.elem_type)
    node = next((node for node in graph.node if node.op_type == op_type and node.name == name), None)
    return tuple(_TYPES[known[value]][0] for value in (node.input if node else ()) if known.get(value) in _TYPES)


def external_tensors(model: onnx.ModelProto) -> tuple[ExternalTensor, ...]:
    """Every external tensor of a model: initializers and attributes, subgraphs and functions included."""
    return tuple(_external(tensor) for tensor in _tensors(model) if tensor.data_location == tensor.EXTERNAL)


def read_model(path: Path, root: Path, files: Mapping[str, Path]) -> ir.Model:
    """The whole model as ``onnx_ir``, weights memory-mapped when used; ``files`` has the file of each location.

    External tensors get absolute locations: for those onnx_ir makes no checks of its own, which hard links and a
    hub cache's links fail. ``external_data.load_model`` makes ours first. Raises GraphFileError.
    """
    import onnx
    import onnx_ir

    read_outline(path, root)  # names what is wrong with a damaged file far better than the parser
    proto = onnx.load(path, load_external_data=False)
    _relocate(proto, lambda location: str(files[location]))
    try:
        return onnx_ir.serde.deserialize_model(proto)
    except Exception as error:  # the library raises many kinds for invalid content
        raise GraphFileError(f"{_shown(path, root)}: {error}", problem="model.invalid") from error


def save_model(
    model: ir.Model,
    folder: Path,
    name: str,
    data_name: str,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write ``folder/name`` with its weights in ``folder/data_name``, tensor by tensor, and return its path.

    ``progress(done, total)`` is called once per tensor. The graph file appears last and whole, by a rename.
    """
    import onnx_ir

    def report(_tensor: object, info: onnx_ir.external_data.CallbackInfo) -> None:
        if progress is not None:
            progress(info.index + 1, info.total)

    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder) as temporary:
        written = Path(temporary)
        onnx_ir.save(model, written / name, external_data=data_name, callback=report)
        if (written / data_name).exists():  # absent when every tensor is small
            os.replace(written / data_name, folder / data_name)
        os.replace(written / name, folder / name)
    return folder / name


def model_bytes(model: ir.Model, anchor: str) -> bytes:
    """The model serialized, external locations written relative to ``anchor``; no weights are read or copied.

    Inline weights stay inline. Raises GraphFileError when the message would pass protobuf's 2 GB.
    """
    import onnx_ir

    proto = onnx_ir.serde.serialize_model(model)
    _relocate(proto, lambda location: Path(location).relative_to(anchor).as_posix())
    if proto.ByteSize() >= _PROTOBUF_LIMIT:
        raise GraphFileError(
            "the graph and its inline weights take more than 2 GB and cannot be rewritten in memory",
            problem="model.too_large",
            hint="save the model with external data",
        )
    serialized: bytes = proto.SerializeToString()
    return serialized


def with_shapes(serialized: bytes) -> bytes:
    """A serialized model with the types and shapes of its inner values, as far as they follow from its inputs."""
    from onnx import shape_inference

    inferred: bytes = shape_inference.infer_shapes(serialized).SerializeToString()
    return inferred


def _shown(path: Path, root: Path) -> str:
    """``path`` as messages show it: relative to the package where it is inside."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _map_outline(descriptor: int, shown: str) -> bytes:
    """The outline of an open file, through a memory map."""
    if os.fstat(descriptor).st_size == 0:
        raise GraphFileError(f"{shown}: the file is empty", problem="model.empty")
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped:
        if mapped[: len(_GIT_LFS)] == _GIT_LFS:
            raise GraphFileError(
                f"{shown}: this is a Git LFS pointer, not the model itself",
                problem="model.invalid",
                hint="fetch the content with `git lfs pull`",
            )
        try:
            return outline(mapped)
        except WireError as error:
            what = "is cut off" if error.truncated else "is not an ONNX file"
            problem = "model.truncated" if error.truncated else "model.invalid"
            raise GraphFileError(f"{shown}: {what}: at byte {error.offset} {error.message}", problem=problem) from error


def _parse(data: bytes, shown: str) -> onnx.ModelProto:
    """The message in ``data``, checked to be a model with a graph and outputs."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise GraphFileError(f"{shown}: is not an ONNX file: {error}", problem="model.invalid") from error
    required = {
        "IR version": model.ir_version > 0,
        "opset import": len(model.opset_import) > 0,
        "graph": model.HasField("graph"),
        "graph output": len(model.graph.output) > 0,
    }
    lacking = [what for what, there in required.items() if not there]
    if lacking:
        raise GraphFileError(
            f"{shown}: is not a complete ONNX model: it has no {', no '.join(lacking)}",
            problem="model.invalid",
        )
    return model


def _port(value: onnx.ValueInfoProto) -> Port:
    """A graph input or output; sequences, maps and the like get the name of their kind as dtype."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return Port(value.name, (kind or "unknown").removesuffix("_type"), None)
    tensor = value.type.tensor_type
    dtype = _TYPES.get(tensor.elem_type, ("unknown", 0))[0]
    shape = tuple(_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
    return Port(value.name, dtype, shape)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    """A fixed size, or the name of a symbolic one; exporters write unknown sizes as -1 or 0 at times."""
    if dim.HasField("dim_value") and dim.dim_value > 0:
        return dim.dim_value
    return size_name(dim.dim_param) if isinstance(dim.dim_param, str) else ""  # bytes: of a damaged file


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: initializers, sparse ones, attributes, in subgraphs and functions too."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for graph in (attribute.g, *attribute.graphs):
            yield from _graph_tensors(graph)


def _external(tensor: onnx.TensorProto) -> ExternalTensor:
    """What an external tensor says about where its bytes are. Raises GraphFileError for numbers that are none."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset = int(entries.get("offset", "0") or 0)
        declared = int(entries["length"]) if entries.get("length") else None
    except ValueError as error:
        raise GraphFileError(
            f"tensor '{tensor.name}': offset and length of external data must be integers: {error}",
            problem="weights.range",
        ) from error
    bits = _TYPES.get(tensor.data_type, ("unknown", 0))[1]
    nbytes = -(-math.prod(tensor.dims) * bits // 8) if bits else None
    return ExternalTensor(tensor.name, entries.get("location", ""), offset, nbytes, declared)


def _relocate(model: onnx.ModelProto, locate: Callable[[str], str]) -> None:
    """Replace the location of every external tensor of a model."""
    for tensor in _tensors(model):
        if tensor.data_location == tensor.EXTERNAL:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = locate(entry.value)

"""What nxrt cannot do of a graph, found when the graph is loaded: the runtime itself tells only when it gets there.

Three things are looked at. Operators in subgraphs and functions are asked for one by one, as what is fed decides which
of them run. The graph is run on made-up inputs until a run succeeds. If none does, all operators are asked for, and a
failure that is the same whatever is fed is the graph's own; failures that differ say nothing, as made-up inputs need
not make sense.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.dtypes import runtime_dtype_name
from genai_pipeline.backends.nxrt_runtime import Failing, NxrtFailure, first_line, guarded, unsupported
from genai_pipeline.backends.protocol import LoadRequest
from genai_pipeline.errors import GraphLoadError
from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.lone_nodes import LoneNode, lone_nodes, nodes_named
from genai_pipeline.graph.signature import Port
from genai_pipeline.types import numpy_dtype

if TYPE_CHECKING:
    import onnx_ir as ir

OTHER: Final = "use the backend ort"
_MOST_SYMBOLS: Final = 6  # of the input shapes that are tried in all combinations of the sizes 1 and 0
_LARGE: Final = 64  # for all axes but the first
_MOST_NUMBERS: Final = 1 << 14  # of an input that is tried: larger ones would take long
_NO_HANDLER: Final = "no handler for"  # in an error: nothing is there for the operator, in whatever dtype
_SHAPELESS: Final = re.compile(r"no inferred shape for value \S+ produced by op (?P<op>\w+)")
_SHAPES: Final = re.compile(r"\[\d+(?:, \d+)*\]")

Fill = Callable[[list[int], np.dtype[Any]], NDArray[Any]]  # np.zeros, np.ones


def try_out(request: LoadRequest, runtime: Any, session: Any, inputs: Sequence[Port], file: Path) -> None:
    """Raise GraphLoadError when the graph has something that the runtime cannot do; ``file`` is what it was given."""
    model = onnx_file.ir.load(file)
    operators = list(lone_nodes(model))
    _ask_for(request, runtime, (node for node in operators if node.nested))
    names = [output.name for output in session.get_outputs()]
    failures: list[NxrtFailure] = []
    for feed in _feeds(inputs):
        try:
            values = guarded(session.run_with_values, names, feed)
        except NxrtFailure as error:
            if unsupported(error) is not None:
                raise refused(request, error) from error
            failures.append(error)
        else:
            if any(0 not in value.shape for value in values):
                return  # a run that gave nothing proves nothing
    stuck = {found["op"] for error in failures if (found := _SHAPELESS.search(str(error))) is not None}
    _ask_for(request, runtime, (node for node in operators if not node.nested), stuck)
    if not stuck and len(set(map(Failing.of, failures))) == 1:
        raise _fails_always(request, failures[0], model) from failures[0]


def refused(request: LoadRequest, error: NxrtFailure) -> GraphLoadError:
    """The error for a graph that the runtime refuses, which names the operator and node at fault where it does."""
    missing = unsupported(error)
    if missing is None:
        return GraphLoadError(f"component '{request.component}': nxrt refuses the graph: {first_line(error)}")
    return _no_kernel(request, missing.op, missing.node)


def _no_kernel(request: LoadRequest, op: str, node: str) -> GraphLoadError:
    message = f"component '{request.component}': nxrt has no kernel for the operator {op}, node {node}"
    return GraphLoadError(message, hint=OTHER)


def _ask_for(request: LoadRequest, runtime: Any, nodes: Iterable[LoneNode], stuck: Set[str] = frozenset()) -> None:
    """Load and run each node alone; what counts is that nothing is there for its operator.

    Of operators in ``stuck``, which the whole graph did not get past, that the shape of what they give is not known
    counts too.
    """
    for node in nodes:
        errors = [error for fill in (np.zeros, np.ones) if (error := _error_alone(runtime, node, fill)) is not None]
        missing = unsupported(errors[0]) if errors else None
        if missing is not None and _NO_HANDLER in str(errors[0]):
            raise _no_kernel(request, missing.op, node.name or missing.node) from errors[0]
        shapeless = {found["op"] for error in errors if (found := _SHAPELESS.search(str(error))) is not None}
        if len(errors) == 2 and node.told and shapeless & stuck:
            what = f"node {node.name} ({shapeless.pop()}), whose output has a shape that depends on values"
            raise GraphLoadError(f"component '{request.component}': nxrt cannot run {what}", hint=OTHER) from errors[0]


def _error_alone(runtime: Any, node: LoneNode, fill: Fill) -> NxrtFailure | None:
    try:
        session = guarded(runtime.InferenceSession, node.serialized)
        guarded(session.run_with_values, [arg.name for arg in session.get_outputs()], _inputs(session, fill))
    except NxrtFailure as error:
        return error
    return None


def _inputs(session: Any, fill: Fill) -> dict[str, NDArray[Any]]:
    """Inputs of one node, with 1 for sizes that are not known."""
    return {
        arg.name: fill(
            [dim if isinstance(dim, int) else 1 for dim in arg.shape], numpy_dtype(runtime_dtype_name(arg.type))
        )
        for arg in session.get_inputs()
    }


def _feeds(inputs: Sequence[Port]) -> Iterator[dict[str, NDArray[Any]]]:
    """Made-up inputs: zeros with the sizes 1 and 0 for what the graph leaves open, then ones in larger ones."""
    symbols = list(dict.fromkeys(dim for port in inputs for dim in port.shape or () if isinstance(dim, str)))
    for sizes in itertools.islice(itertools.product((1, 0), repeat=len(symbols)), 1 << _MOST_SYMBOLS):
        yield _made(inputs, dict(zip(symbols, sizes, strict=True)), np.zeros)
    rows = {port.shape[0] for port in inputs if port.shape}
    yield _made(inputs, dict.fromkeys(symbols, 3), np.ones)
    large = min(_LARGE, _room(inputs))
    yield _made(inputs, {symbol: 1 if symbol in rows else large for symbol in symbols}, np.ones)


def _room(inputs: Sequence[Port]) -> int:
    """The size that all axes but the first may have for no input to be large."""
    room = _MOST_NUMBERS
    for port in inputs:
        sizes = port.shape or ()
        fixed = math.prod(size for size in sizes if isinstance(size, int))
        num_open = sum(isinstance(size, str) for size in sizes[1:])
        if num_open:
            room = min(room, max(1, int((_MOST_NUMBERS / max(fixed, 1)) ** (1 / num_open))))
    return room


def _made(inputs: Sequence[Port], sizes: dict[str, int], fill: Fill) -> dict[str, NDArray[Any]]:
    shapes = {port.name: [sizes[d] if isinstance(d, str) else d for d in port.shape or ()] for port in inputs}
    return {port.name: fill(shapes[port.name], numpy_dtype(port.dtype)) for port in inputs}


def _fails_always(request: LoadRequest, error: NxrtFailure, model: ir.Model) -> GraphLoadError:
    """Name the node: as the runtime does, else those of the operator, else none."""
    failing = Failing.of(error)
    node = failing.node or _node_of(failing, model)
    where = f"node {node} ({failing.op})" if node else failing.op or "the graph"
    message = f"component '{request.component}': nxrt cannot run {where}, whatever it is fed: {failing.reason}"
    return GraphLoadError(message, hint=OTHER)


def _node_of(failing: Failing, model: ir.Model) -> str:
    """The node of the operator, if there is one only, or one only that reads weights of a shape in the message."""
    nodes = list(nodes_named(model, failing.op))
    listed = (found.strip("[]").split(",") for found in _SHAPES.findall(failing.reason))
    told = {tuple(map(int, sizes)) for sizes in listed}
    fits = [name for name, shapes in nodes if told.intersection(shapes)]
    for names in ([name for name, _ in nodes], fits):
        if len(names) == 1:
            return names[0]
    return ""

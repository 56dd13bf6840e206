"""The backend nxrt: a runtime of its own, on the CPU. What it cannot do is found when a graph is loaded."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.nxrt_graph import NxrtGraph
from genai_pipeline.backends.nxrt_runtime import first_line, is_failure, nxrt, unsupported
from genai_pipeline.backends.protocol import LoadRequest
from genai_pipeline.backends.rewriting import rewrite
from genai_pipeline.errors import GraphLoadError, OptionError, ProviderUnavailableError
from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.external_data import load_model, loadable_graph, write_beside_links
from genai_pipeline.graph.fused_matmul import lower_fused_matmul
from genai_pipeline.graph.signature import GraphSignature, Port
from genai_pipeline.types import numpy_dtype

_PROVIDERS = ("cpu",)
_OTHER = "use the backend ort"
_FLOATS, _INTEGERS = ("float16", "float32", "float64"), ("int8", "int16", "int32", "int64")
_DTYPES = frozenset({*_FLOATS, *_INTEGERS, *(f"u{name}" for name in _INTEGERS), "bool"})  # that it takes and gives
_MOST_SYMBOLS = 6  # of the input shapes of a graph that is tried out


class NxrtBackend:
    """Loads graphs into nxrt sessions. It sizes its threads itself: ``threads`` must be None."""

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None:
            message = f"threads={threads} was asked for, but the backend nxrt chooses its threads itself"
            raise OptionError(message, param="threads", hint="leave threads out, or use the backend ort")

    @property
    def name(self) -> str:
        """The name users select it by."""
        return "nxrt"

    def load(self, request: LoadRequest) -> NxrtGraph:
        """Load one graph and try it out once.

        Raises RuntimeMissingError, ProviderUnavailableError, GraphFileError or
        GraphLoadError: the runtime refuses the graph, or has no kernel for one of its operators.
        """
        runtime = nxrt()
        path, root = Path(request.path), Path(request.root)
        source = onnx_file.read_signature(path, root)
        _check(request, source)
        rewritten = rewrite(request, source)
        model = rewritten.model or load_model(path, root)
        lower_fused_matmul(model)
        with ExitStack() as undo:
            folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="genai-nxrt-"))
            file = write_beside_links(loadable_graph(path, root, model), path, root, Path(folder))
            try:
                session = runtime.InferenceSession(str(file))
            except BaseException as error:
                if not is_failure(error):
                    raise
                raise _refused(request, error) from error
            graph = NxrtGraph(
                session,
                request.component,
                nodes=len(model.graph),
                notes=(*_passed_over(request), *rewritten.notes),
                source=source,
                rewritten=rewritten,
                resources=undo.pop_all(),
            )
        try:
            _try_out(request, graph)
        except BaseException:
            graph.close()
            raise
        return graph


def _check(request: LoadRequest, signature: GraphSignature) -> None:
    """Refuse what this runtime would not do: other providers alone, and element types that cannot cross."""
    asked = request.providers or _PROVIDERS
    here = [name for name in asked if name in _PROVIDERS]
    if not here or (request.providers_required and len(here) < len(asked)):
        name = next(name for name in asked if name not in _PROVIDERS)
        raise ProviderUnavailableError(
            f"provider '{name}' is not available; the backend nxrt has {', '.join(_PROVIDERS)}",
            hint="use the backend ort for other providers",
        )
    for port in (*signature.inputs.values(), *signature.outputs.values()):
        if port.dtype not in _DTYPES:
            message = f"component '{request.component}': nxrt takes no {port.dtype}, which port '{port.name}' has"
            raise GraphLoadError(message, hint=_OTHER)


def _passed_over(request: LoadRequest) -> tuple[str, ...]:
    missing = [name for name in request.providers if name not in _PROVIDERS]
    unread = {"session options": request.config, "a profile": request.profile}
    return (
        *(f"provider '{name}' is not available with the backend nxrt; using cpu" for name in missing),
        *(f"nxrt has no setting for {what}" for what, given in unread.items() if given),
    )


def _refused(request: LoadRequest, error: BaseException) -> GraphLoadError:
    missing = unsupported(error)
    if missing is None:
        return GraphLoadError(f"component '{request.component}': nxrt refuses the graph: {first_line(error)}")
    return GraphLoadError(
        f"component '{request.component}': nxrt has no kernel for the operator {missing.op}, node {missing.node}",
        hint=_OTHER,
    )


def _try_out(request: LoadRequest, graph: NxrtGraph) -> None:
    """Run the graph once on zeros: the runtime tells only then what it has no kernel for.

    Sizes that the graph leaves open are tried as 1 and 0 until a run succeeds; runs that fail for another reason than
    a missing kernel say nothing, as made-up inputs need not make sense.
    """
    inputs = list(graph.signature.inputs.values())
    names = list(graph.signature.outputs)
    for feed in _feeds(inputs):
        try:
            graph.session.run_with_values(names, feed)
        except BaseException as error:
            if not is_failure(error):
                raise
            if unsupported(error) is not None:
                raise _refused(request, error) from error
        else:
            return


def _feeds(inputs: Sequence[Port]) -> Iterator[dict[str, NDArray[Any]]]:
    symbols = list(dict.fromkeys(dim for port in inputs for dim in port.shape or () if isinstance(dim, str)))
    for sizes in itertools.islice(itertools.product((1, 0), repeat=len(symbols)), 1 << _MOST_SYMBOLS):
        given = dict(zip(symbols, sizes, strict=True))
        shapes = {port.name: [given[d] if isinstance(d, str) else d for d in port.shape or ()] for port in inputs}
        yield {port.name: np.zeros(shapes[port.name], numpy_dtype(port.dtype)) for port in inputs}

"""The backend nxrt: a runtime of its own, on the CPU. What it cannot do is found when a graph is loaded."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from genai_pipeline.backends.nxrt_graph import NxrtGraph
from genai_pipeline.backends.nxrt_runtime import NxrtFailure, guarded, nxrt
from genai_pipeline.backends.nxrt_trial import OTHER, refused, try_out
from genai_pipeline.backends.placement import Shortfall
from genai_pipeline.backends.protocol import LoadRequest
from genai_pipeline.backends.providers import choose, find_built_in
from genai_pipeline.backends.rewriting import rewrite
from genai_pipeline.errors import GraphLoadError, OptionError, ProviderUnavailableError
from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.external_data import load_model, loadable_graph, write_beside_links
from genai_pipeline.graph.fused_matmul import lower_fused_matmul
from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.graph.unknown_sizes import forget_unknown_sizes
from genai_pipeline.metadata.provider_names import label_of, parse_provider

_PROVIDERS = ("cpu",)
_FLOATS, _INTEGERS = ("float16", "float32", "float64"), ("int8", "int16", "int32", "int64")
_DTYPES = frozenset({*_FLOATS, *_INTEGERS, *(f"u{name}" for name in _INTEGERS), "bool"})  # that it takes and gives


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

    def version(self) -> str:
        """The version of nxrt. Raises RuntimeMissingError."""
        return str(nxrt().__version__)

    def providers(self) -> tuple[str, ...]:
        """The CPU. Raises RuntimeMissingError."""
        nxrt()
        return _PROVIDERS

    def find(self, asked: str) -> str:
        """The CPU, without options. Raises ProviderUnavailableError for others, OptionError for options."""
        spec = parse_provider(asked)
        if spec.plugin:
            message = f"the backend nxrt takes no plugin, and {label_of(asked)} is one"
            raise ProviderUnavailableError(message, hint=OTHER)
        name = find_built_in(asked, _PROVIDERS, runtime="the backend nxrt", hint=f"{OTHER} for other providers")
        if spec.options:
            message = f"the backend nxrt has no options of providers, and '{asked}' gives one"
            raise OptionError(message, param="providers", hint="leave it out")
        return name

    def load(self, request: LoadRequest) -> NxrtGraph:
        """Load one graph and try it out once.

        Raises RuntimeMissingError, ProviderUnavailableError, GraphFileError or
        GraphLoadError: the runtime refuses the graph, or has no kernel for one of its operators.
        """
        choice = choose(request.providers or _PROVIDERS, self.find, required=request.providers_required)
        runtime = nxrt()
        path, root = Path(request.path), Path(request.root)
        source = onnx_file.read_signature(path, root)
        _check(request, source)
        rewritten = rewrite(request, source)
        model = rewritten.model or load_model(path, root)
        lower_fused_matmul(model)
        forget_unknown_sizes(model)
        with ExitStack() as undo:
            folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="genai-nxrt-"))
            file = write_beside_links(loadable_graph(path, root, model), path, root, Path(folder))
            try:
                session = guarded(runtime.InferenceSession, str(file))
            except NxrtFailure as error:
                raise refused(request, error) from error
            graph = NxrtGraph(
                session,
                request.component,
                nodes=len(model.graph),
                notes=(*_passed_over(request), *rewritten.notes),
                shortfall=Shortfall(choice.missing),
                source=source,
                rewritten=rewritten,
                resources=undo.pop_all(),
            )
        try:
            try_out(request, runtime, session, list(graph.signature.inputs.values()), file)
        except BaseException:
            graph.close()
            raise
        return graph


def _check(request: LoadRequest, signature: GraphSignature) -> None:
    """Refuse element types that cannot cross."""
    for port in (*signature.inputs.values(), *signature.outputs.values()):
        if port.dtype not in _DTYPES:
            message = f"component '{request.component}': nxrt takes no {port.dtype}, which port '{port.name}' has"
            raise GraphLoadError(message, hint=OTHER)


def _passed_over(request: LoadRequest) -> tuple[str, ...]:
    unread = {
        "session options": request.config,
        "options of providers": request.provider_options,
        "a profile": request.profile,
    }
    return tuple(f"nxrt has no setting for {what}" for what, given in unread.items() if given)

"""The default backend: graphs on ONNX Runtime, strict about where they run and about the files they read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from genai_pipeline.backends.ort_binding import QUIET
from genai_pipeline.backends.ort_contexts import Kept, kept_graph
from genai_pipeline.backends.ort_errors import MissingKernel, kernel_hint, missing_kernel, shorten
from genai_pipeline.backends.ort_graph import OrtGraph
from genai_pipeline.backends.ort_memory import device_memory
from genai_pipeline.backends.ort_profile import OrtProfile
from genai_pipeline.backends.ort_providers import (
    SessionProviders,
    attach_providers,
    built_in,
    choose_providers,
    find_provider,
    placed_nodes,
    shortfall,
)
from genai_pipeline.backends.placement import CPU
from genai_pipeline.backends.protocol import LoadRequest
from genai_pipeline.backends.rewriting import rewrite
from genai_pipeline.backends.runtime import onnxruntime
from genai_pipeline.backends.threads import POOL
from genai_pipeline.errors import GraphLoadError, OptionError
from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.external_data import LoadableGraph, loadable_graph
from genai_pipeline.metadata.session_keys import ASSIGNMENT, CONTEXTS, DATA_FOLDER, RESERVED

_NO_CPU = "session.disable_cpu_ep_fallback"


class OrtBackend:
    """Loads graphs into ONNX Runtime sessions that share the process-wide thread pool.

    ``threads``: size of the pool; None: the cores the process may use. It can be chosen once per process.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads

    @property
    def name(self) -> str:
        """The name users select it by."""
        return "ort"

    def version(self) -> str:
        """The version of ONNX Runtime. Raises RuntimeMissingError."""
        return str(onnxruntime().__version__)

    def providers(self) -> tuple[str, ...]:
        """The providers of this build of ONNX Runtime. Raises RuntimeMissingError."""
        return built_in(onnxruntime())

    def find(self, asked: str) -> str:
        """The short name of a provider. Raises RuntimeMissingError, ProviderUnavailableError, OptionError."""
        return find_provider(onnxruntime(), asked, {})

    def load(self, request: LoadRequest) -> OrtGraph:
        """Load one graph.

        Raises RuntimeMissingError, ProviderUnavailableError, GraphFileError (the file or its weights), OptionError
        (threads, configuration) or GraphLoadError (the runtime refuses the graph).
        """
        runtime = onnxruntime()
        choice = choose_providers(runtime, request)
        pool = POOL.ensure(runtime, self._threads)
        signature = onnx_file.read_signature(Path(request.path), Path(request.root))
        rewritten = rewrite(request, signature)
        graph = loadable_graph(Path(request.path), Path(request.root), rewritten.model)
        session, kept = _session(runtime, request, choice, graph)
        profile = None if request.profile is None else OrtProfile.of(session)
        placement, on_cpu = placed_nodes(session)
        unmet = shortfall(choice, placement, on_cpu)
        return OrtGraph(
            runtime,
            session,
            request.component,
            placement=placement,
            notes=(*pool.notes, *rewritten.notes, *kept.notes),
            shortfall=unmet,
            source=signature,
            rewritten=rewritten,
            memory=device_memory(runtime, session, placement),
            profile=profile,
        )


def _session(runtime: Any, request: LoadRequest, choice: SessionProviders, graph: LoadableGraph) -> tuple[Any, Kept]:
    """A session of the graph, or of what a provider compiled of it; a compiled one that does not load is made anew."""

    def plain_options() -> Any:
        return _session_options(runtime, replace(request, profile=None), choice, graph)

    kept = kept_graph(runtime, request, choice, graph, plain_options)
    try:
        return _create(runtime, request, choice, kept.graph or graph), kept
    except GraphLoadError:
        if kept.graph is None:
            raise
    kept = kept_graph(runtime, request, choice, graph, plain_options, renew=True)
    return _create(runtime, request, choice, kept.graph or graph), kept


def _session_options(runtime: Any, request: LoadRequest, choice: SessionProviders, graph: LoadableGraph) -> Any:
    options = runtime.SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = QUIET
    # A memory pattern is kept for every combination of input shapes ever seen; a growing context has no end of them.
    options.enable_mem_pattern = False
    options.add_session_config_entry(ASSIGNMENT, "1")
    if request.profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, request.profile
    if graph.folder is not None:
        options.add_session_config_entry(DATA_FOLDER, graph.folder)
    config = {key: value for key, value in request.config if key != CONTEXTS}  # which is done here
    if request.providers_required and CPU not in choice.names:
        config.setdefault(_NO_CPU, "1")
    for key, value in config.items():
        if key in RESERVED:
            raise OptionError(
                f"component '{request.component}' sets '{key}', which cannot be set: {RESERVED[key]}", param=key
            )
        options.add_session_config_entry(key, value)
    return options


def _create(runtime: Any, request: LoadRequest, choice: SessionProviders, graph: LoadableGraph) -> Any:
    options = _session_options(runtime, request, choice, graph)
    providers = attach_providers(options, choice)
    source = graph.source if isinstance(graph.source, bytes) else str(graph.source)
    try:
        # enable_fallback=0: the runtime would print to stdout and go on with another provider.
        return runtime.InferenceSession(source, options, providers=providers, enable_fallback=0)
    except Exception as error:
        missing = missing_kernel(error)
        if missing is not None:
            raise _no_kernel(request, choice, missing) from error
        hint, where = "", " and ".join(choice.names)
        if CPU not in choice.names and "CPU EP" in str(error):
            hint = "name cpu as the last provider to let it run what the others cannot"
        raise GraphLoadError(
            f"component '{request.component}': the runtime refuses the graph with {where}: {shorten(error)}", hint=hint
        ) from error


def _no_kernel(request: LoadRequest, choice: SessionProviders, missing: MissingKernel) -> GraphLoadError:
    dtypes = onnx_file.node_dtypes(Path(request.path), Path(request.root), missing.op, missing.node)
    of_type = f" on {', '.join(dict.fromkeys(dtypes))}" if dtypes else ""
    which = f"node '{missing.node}' ({missing.op})" if missing.node else f"a node {missing.op}"
    where = ", ".join(choice.names)
    return GraphLoadError(
        f"component '{request.component}': {which}{of_type} has no kernel in provider {where}",
        hint=kernel_hint(missing.op, choice.names),
    )

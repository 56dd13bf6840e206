"""Graphs as a provider compiled them, kept for the next load: what ONNX Runtime calls EPContext models.

A component asks for it by ``ep.context_enable: 1`` in its session's ``config``. Where they lie is up to the store that
comes with the request. What a provider gives depends on the graph, its weights, the provider with
its options and devices, and the version of the runtime: all of that is in the key. Providers that compile nothing, or
give nothing to keep, are told by a note, and are asked only once for each key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from genai_pipeline.backends.ort_errors import shorten
from genai_pipeline.backends.ort_plugins import Plugin
from genai_pipeline.backends.ort_providers import SessionProviders, add_providers
from genai_pipeline.backends.placement import CPU
from genai_pipeline.backends.protocol import LoadRequest
from genai_pipeline.errors import GenaiError, GraphLoadError
from genai_pipeline.graph.external_data import LoadableGraph, scan_external_data
from genai_pipeline.metadata.session_keys import CONTEXTS

_FILE: Final = "compiled.onnx"
_WEIGHTS: Final = "constants.bin"  # of nodes that are not compiled
_GIVES_NONE: Final = re.compile("Unable to compile any nodes|returned a NULL EPContext node")
_REASON: Final = "none.txt"  # in its place: why there is nothing to keep


@dataclass(frozen=True, slots=True)
class Kept:
    """A compiled graph and what is to be said of it; ``graph`` None: there is none, the graph is loaded as it is."""

    graph: LoadableGraph | None = None
    notes: tuple[str, ...] = ()


def kept_graph(
    runtime: Any,
    request: LoadRequest,
    choice: SessionProviders,
    graph: LoadableGraph,
    options: Callable[[], Any],
    *,
    renew: bool = False,
) -> Kept:
    """The compiled graph of a request, compiled now where it is not kept yet, or is to be made anew.

    ``options``: makes options of a session without providers.
    """
    if dict(request.config).get(CONTEXTS) != "1":
        return Kept()
    who = f"'{request.component}'"
    if all(name == CPU for name in choice.names):
        return Kept(notes=(f"no compiled graph of {who} is kept: the cpu compiles none",))
    if request.store is None:
        return Kept(notes=(f"no compiled graph of {who} is kept: there is no place for it",))

    def build(folder: Path) -> None:
        folder.mkdir()
        session_options = options()
        add_providers(session_options, choice)
        source = graph.source if isinstance(graph.source, bytes) else str(graph.source)
        try:
            compiler = runtime.ModelCompiler(
                session_options, source, external_initializers_file_path=_WEIGHTS, flags=_flags(runtime)
            )
            compiler.compile_to_file(str(folder / _FILE))
        except Exception as error:
            if _GIVES_NONE.search(str(error)) is None:
                raise GraphLoadError(f"it does not compile: {shorten(error)}") from error
            (folder / _REASON).write_text(shorten(error), encoding="utf-8")

    try:
        folder = request.store(_key(runtime, request, choice, graph), build, renew)
    except GenaiError as error:
        return Kept(notes=(f"no compiled graph of {who} is kept: {error}",))
    reason = folder / _REASON
    if reason.exists():
        why = reason.read_text(encoding="utf-8")
        return Kept(notes=(f"no compiled graph of {who} is kept: none of {', '.join(choice.names)} gives one: {why}",))
    anew = " made anew, as it did not load," if renew else ""
    return Kept(LoadableGraph(folder / _FILE), (f"the compiled graph of {who} lies{anew} in {folder}",))


def _flags(runtime: Any) -> int:
    return int(runtime.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED)


def _key(runtime: Any, request: LoadRequest, choice: SessionProviders, graph: LoadableGraph) -> str:
    content = graph.source if isinstance(graph.source, bytes) else graph.source.read_bytes()
    made = hashlib.blake2b(content, digest_size=20)
    made.update(repr((str(runtime.__version__), sorted(request.config), sorted(_identities(request)))).encode())
    for name, given in choice.options.items():
        made.update(repr((name, sorted(given.items()), _plugin(choice.plugins.get(name)))).encode())
    return made.hexdigest()


def _identities(request: LoadRequest) -> Iterator[tuple[str, int, int]]:
    """What tells the weights of a graph from others, without reading them."""
    for file in scan_external_data(Path(request.path), Path(request.root)).files.values():
        yield _identity(file)


def _plugin(plugin: Plugin | None) -> object:
    if plugin is None:
        return None
    devices = [sorted(device.ep_metadata.items()) for device in plugin.devices]
    return _identity(plugin.library), devices


def _identity(file: Path) -> tuple[str, int, int]:
    stat = file.stat()
    return str(file), stat.st_size, stat.st_mtime_ns

"""Plugin execution providers of ONNX Runtime: libraries registered once per process, and the devices they bring."""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from genai_pipeline.backends.ort_errors import shorten
from genai_pipeline.errors import ProviderUnavailableError
from genai_pipeline.metadata.provider_names import ProviderSpec

_GETTER = "get_library_path"
_lock = Lock()
_registered: dict[Path, str] = {}  # registering a library twice would list its devices twice


@dataclass(frozen=True, slots=True)
class Plugin:
    """A registered library: the provider's own name, and the runtime's devices for it."""

    name: str
    library: Path
    devices: tuple[Any, ...]


def load_plugin(runtime: Any, spec: ProviderSpec) -> Plugin:
    """The plugin of a library's path or of an installed distribution. Raises ProviderUnavailableError."""
    library = _file(spec) if spec.is_library else _library(spec)
    with _lock:
        if library not in _registered:
            try:
                runtime.register_execution_provider_library(str(library), str(library))
            except Exception as error:
                raise _unavailable(spec, f"its library does not load: {shorten(error)}") from error
            _registered[library] = str(library)
    devices = [device for device in runtime.get_ep_devices() if _library_path(device) == library]
    if not devices:
        raise _unavailable(spec, "it finds no device on this machine")
    name = devices[0].ep_name
    return Plugin(name, library, tuple(device for device in devices if device.ep_name == name))


def plugin_names(runtime: Any) -> frozenset[str]:
    """The runtime's names of providers that are of a registered plugin, whoever registered it."""
    return frozenset(device.ep_name for device in runtime.get_ep_devices() if _library_path(device) is not None)


def _library_path(device: Any) -> Path | None:
    path = device.ep_metadata.get("library_path")
    return None if path is None else Path(path).resolve()


def installed_plugins() -> dict[str, Path]:
    """The libraries of plugins that installed distributions bring, by distribution."""
    found = {}
    for distribution in importlib.metadata.distributions():
        library = _library_of(distribution)
        if library is not None:
            found[distribution.name] = library
    return dict(sorted(found.items()))


def _file(spec: ProviderSpec) -> Path:
    path = Path(spec.name)
    if not path.is_file():
        raise _unavailable(spec, f"there is no file {path}")
    return path.resolve()


def _library(spec: ProviderSpec) -> Path:
    try:
        distribution = importlib.metadata.distribution(spec.name)
    except importlib.metadata.PackageNotFoundError as error:
        raise _unavailable(spec, "no such distribution is installed") from error
    library = _library_of(distribution)
    if library is None:
        raise _unavailable(spec, f"none of its modules has {_GETTER}()")
    return library


def _library_of(distribution: importlib.metadata.Distribution) -> Path | None:
    """The library that a distribution brings, if it does. Only a module that has the function is imported for it."""
    for file in sorted(distribution.files or ()):
        if len(file.parts) != 2 or file.name != "__init__.py":
            continue
        source = Path(str(file.locate()))
        if source.is_file() and _GETTER in source.read_text(encoding="utf-8", errors="replace"):
            getter = getattr(importlib.import_module(file.parts[0]), _GETTER, None)
            if getter is not None:
                return Path(getter()).resolve()
    return None


def _unavailable(spec: ProviderSpec, why: str) -> ProviderUnavailableError:
    there = ", ".join(installed_plugins()) or "none"
    how = "give a library's path, or pip install what has it and write plugin:DISTRIBUTION"
    if not spec.is_library:
        how = f"pip install {spec.name}, or give the path of a library"
    hint = f"{how}; installed plugins: {there}"
    return ProviderUnavailableError(f"the provider plugin '{spec.name}' is not available: {why}", hint=hint)

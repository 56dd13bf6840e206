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

_GETTER = "get_library_path"
_lock = Lock()
_registered: dict[Path, str] = {}  # registering a library twice would list its devices twice


@dataclass(frozen=True, slots=True)
class Plugin:
    """A registered library: the provider's own name, and the runtime's devices for it."""

    name: str
    library: Path
    devices: tuple[Any, ...]


def load_plugin(runtime: Any, asked: str) -> Plugin:
    """The plugin of a library's path or of an installed distribution. Raises ProviderUnavailableError."""
    library = _library(asked)
    with _lock:
        if library not in _registered:
            try:
                runtime.register_execution_provider_library(str(library), str(library))
            except Exception as error:
                raise _unavailable(asked, f"its library does not load: {shorten(error)}") from error
            _registered[library] = str(library)
    devices = [device for device in runtime.get_ep_devices() if _is_of(device, library)]
    if not devices:
        raise _unavailable(asked, "it finds no device on this machine")
    name = devices[0].ep_name
    return Plugin(name, library, tuple(device for device in devices if device.ep_name == name))


def _is_of(device: Any, library: Path) -> bool:
    path = device.ep_metadata.get("library_path")
    return path is not None and Path(path).resolve() == library


def _library(asked: str) -> Path:
    path = Path(asked)
    if path.is_file():
        return path.resolve()
    if "/" in asked or "\\" in asked:
        raise _unavailable(asked, f"there is no file {path}")
    try:
        files = importlib.metadata.distribution(asked).files or ()
    except importlib.metadata.PackageNotFoundError as error:
        raise _unavailable(asked, "no such file, and no such distribution is installed") from error
    packages = sorted({file.parts[0] for file in files if len(file.parts) == 2 and file.name == "__init__.py"})
    for name in packages:
        getter = getattr(importlib.import_module(name), _GETTER, None)
        if getter is not None:
            return Path(getter()).resolve()
    raise _unavailable(asked, f"none of its modules has {_GETTER}()")


def _unavailable(asked: str, why: str) -> ProviderUnavailableError:
    hint = f"give the path of a provider's library, or install the distribution: pip install '{Path(asked).name}'"
    return ProviderUnavailableError(f"the provider plugin '{asked}' is not available: {why}", hint=hint)

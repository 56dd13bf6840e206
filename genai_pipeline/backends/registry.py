"""Backends by name: the ones that come along, those of entry points, and which one is taken when none is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Final

from genai_pipeline.backends.protocol import Backend
from genai_pipeline.errors import OptionError
from genai_pipeline.problems import nearest, one_of

GROUP: Final = "genai_pipeline.backends"
AUTO: Final = "auto"

# A factory takes the number of threads (None: as many as the process may use).
Factory = Callable[[int | None], Backend]

_OWN: Final = {"ort": "genai_pipeline.backends.ort:OrtBackend", "nxrt": "genai_pipeline.backends.nxrt:NxrtBackend"}
_MODULES: Final = {"ort": "onnxruntime", "nxrt": "nxrt"}  # whose presence says that a backend can run
_added: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Add a backend to this process. Raises OptionError for a name that is taken."""
    if name in backend_names():
        raise OptionError(f"a backend '{name}' is there already", param="name")
    _added[name] = factory


def unregister(name: str) -> None:
    """Take back what ``register`` added."""
    del _added[name]


def backend_names() -> tuple[str, ...]:
    """Every name that ``make_backend`` takes besides "auto"."""
    return (*_OWN, *_declared(), *_added)


def make_backend(name: str | Backend, threads: int | None = None) -> Backend:
    """The backend of a name; "auto" is the first that is installed, and one that is made already is itself.

    Raises OptionError, RuntimeMissingError.
    """
    if not isinstance(name, str):
        if threads is not None:
            message = f"threads={threads} was asked for, but the backend {name.name} is made already"
            raise OptionError(message, param="threads", hint="make it with so many threads")
        return name
    chosen = _installed(_MODULES) if name == AUTO else name
    if chosen in _added:
        return _added[chosen](threads)
    target = _OWN.get(chosen) or _declared().get(chosen)
    if target is None:
        names = (AUTO, *backend_names())
        hint = nearest(name, names) or f"it is one of: {one_of(names)}"
        raise OptionError(f"unknown backend '{name}'", param="backend", hint=hint)
    module, _, attribute = target.partition(":")
    factory: Factory = getattr(import_module(module), attribute)
    return factory(threads)


def _installed(modules: Iterable[str]) -> str:
    """The first backend whose runtime is there; the default, which says what to install, when none is."""
    return next((name for name in modules if find_spec(_MODULES[name]) is not None), next(iter(modules)))


@lru_cache(maxsize=1)
def _declared() -> dict[str, str]:
    """Backends that installed distributions declare."""
    return {point.name: point.value for point in entry_points(group=GROUP)}

"""How a package is loaded: the options of ``gp.load`` and of the command, checked once."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.provider_names import AskedProviders, read_providers
from genai_pipeline.option_values import boolean, integer
from genai_pipeline.problems import nearest, one_of, shown
from genai_pipeline.scheduler.policy import POLICIES
from genai_pipeline.speculative.options import read_draft

if TYPE_CHECKING:
    from genai_pipeline.backends.protocol import Backend

DEFAULT_MAX_BATCH = 16
DEFAULT_PREFILL_CHUNK = 512
MAX_THREADS = 1024
MAX_BATCH = 1 << 16  # rows have bookkeeping of their own, whether or not one runs in them
DEFAULT_CONTEXT = 4096  # of packages that declare none


# Load options that the environment may give, by its variables.
VARIABLES: Final = {
    "GENAI_PIPELINE_BACKEND": "backend",
    "GENAI_PIPELINE_PROVIDERS": "providers",
    "GENAI_PIPELINE_THREADS": "threads",
}

Check = Callable[[str, Any], Any]


class Selection(TypedDict, total=False):
    """What runs the graphs of a package; see ``LoadOptions``."""

    backend: str | Backend
    providers: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None


class LoadArguments(Selection, total=False):
    """What ``gp.load`` takes besides the package, its precision and a progress callback; see ``LoadOptions``."""

    threads: int | None
    context_length: int | None
    prefill_chunk: int
    max_batch: int
    memory: str | int | float
    prefix_cache: bool
    policy: str
    profile: str | os.PathLike[str] | None
    cache_int8: bool
    cache_disk: str | int | None
    cache_folder: str | os.PathLike[str] | None
    draft: str | os.PathLike[str]
    max_queue: int | None
    encoder_cache: str | int


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Runtime choices that do not change an answer on the reference provider.

    ``backend`` is a name, or a ``backends.protocol.Backend`` that is made already.
    ``providers`` None takes the package's own list, else the CPU; a mapping has those of single components.
    ``threads`` None follows the cores of this process and its cgroup; ``context_length`` may only lower what the
    package declares. ``memory`` bounds the state of all sequences and the prefix cache together: bytes, a fraction of
    what is free, a text such as "2GiB", or "auto".

    ``cache_int8`` keeps cached prefixes as 8-bit integers: the one option that changes answers, by rounding.
    ``cache_disk`` (bytes or a text) lets them go to files in ``cache_folder`` (None: where the system has temporary
    files) before they are dropped.

    ``max_queue`` is how many requests may be in the engine beyond the ``max_batch`` that can run at once; further ones
    are refused with QueueFullError. None: any number.

    ``encoder_cache`` (bytes or a text, 0: off) bounds what is kept of components that read pictures or sounds, so that
    the same one is encoded once.

    ``draft`` says where drafts for speculative decoding come from: "auto" (what the package declares), "off", "lookup"
    (the tokens so far), or a package with a smaller model. Tokens are the same with and without.
    """

    backend: str | Backend = "auto"
    providers: AskedProviders | None = None
    threads: int | None = None
    context_length: int | None = None
    prefill_chunk: int = DEFAULT_PREFILL_CHUNK
    max_batch: int = DEFAULT_MAX_BATCH
    memory: str | int | float = "auto"
    prefix_cache: bool = True
    policy: str = "priority"
    profile: str | None = None
    cache_int8: bool = False
    cache_disk: str | int | None = None
    cache_folder: str | None = None
    draft: str = "auto"
    max_queue: int | None = None
    encoder_cache: str | int = "256MiB"

    @staticmethod
    def of(**given: Unpack[LoadArguments]) -> LoadOptions:
        """Checked options; what is not given has its default. Raises OptionError by name."""
        options = LoadOptions(**{name: check_load_option(name, value) for name, value in given.items()})
        if options.cache_folder is not None and options.cache_disk is None:
            raise OptionError(
                "cache_folder without cache_disk",
                param="cache_folder",
                hint='say how much it may hold: cache_disk="10GiB"',
            )
        return options


def check_load_option(name: str, value: Any) -> Any:
    """The value of one load option in its own type. Raises OptionError for unknown names and values that do not fit."""
    if name not in _CHECKS:
        names = (*_CHECKS, "precision")  # which is an argument beside these
        hint = nearest(name, names) or f"options are: {one_of(names, limit=40)}"
        raise OptionError(f"unknown load option '{name}'", param=name, hint=hint)
    return _CHECKS[name](name, value)


def environment_options(environment: Mapping[str, str], given: Container[str] = ()) -> dict[str, Any]:
    """Load options from the environment, each checked; an empty variable is not set. Raises OptionError by variable.

    Those that are ``given`` otherwise are not looked at.
    """
    found: dict[str, Any] = {}
    for variable, name in VARIABLES.items():
        text = environment.get(variable, "").strip()
        if not text or name in given:
            continue
        value: Any = text
        if name == "threads" and text.isdecimal() and len(text) < MAX_THREADS:
            value = int(text)
        try:
            found[name] = _CHECKS[name](name, value)
        except OptionError as error:
            raise OptionError(f"{variable}: {error.message}", param=name, hint=error.hint) from error
    return found


def _integer(low: int, high: int | None = None) -> Check:
    return lambda name, value: integer(name, value, low, high)


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _as_given(name: str, value: Any) -> Any:
    """Sizes are checked where the machine's memory is known."""
    return value


def _backend(name: str, given: Any) -> str | Backend:
    from genai_pipeline.backends.protocol import Backend
    from genai_pipeline.backends.registry import AUTO, backend_names

    if isinstance(given, Backend):
        return given
    return str(_one_of((AUTO, *backend_names()))(name, given))


def _path(name: str, given: Any) -> str:
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    raise OptionError(f"{name} must be a path, not {shown(given)}", param=name)


def _one_of(allowed: Iterable[str]) -> Check:
    def check(name: str, value: Any) -> str:
        if value not in allowed:
            hint = (nearest(value, allowed) if isinstance(value, str) else "") or f"it is one of: {one_of(allowed)}"
            raise OptionError(f"unknown {name} {shown(value)}", param=name, hint=hint)
        return str(value)

    return check


_CHECKS: Mapping[str, Check] = {
    "backend": _backend,
    "providers": _optional(read_providers),
    "threads": _optional(_integer(1, MAX_THREADS)),
    "context_length": _optional(_integer(2)),
    "prefill_chunk": _integer(3),
    "max_batch": _integer(1, MAX_BATCH),
    "memory": _as_given,
    "prefix_cache": boolean,
    "policy": _one_of(tuple(POLICIES)),
    "profile": _optional(_path),
    "cache_int8": boolean,
    "cache_disk": _as_given,
    "cache_folder": _optional(_path),
    "draft": read_draft,
    "max_queue": _optional(_integer(0)),
    "encoder_cache": _as_given,
}

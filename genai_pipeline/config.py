"""How a package is loaded: the options of ``gp.load`` and of the command, checked once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from genai_pipeline.errors import OptionError
from genai_pipeline.option_values import boolean, integer
from genai_pipeline.problems import nearest, one_of
from genai_pipeline.scheduler.policy import POLICIES

BACKENDS = ("auto", "ort")
DEFAULT_MAX_BATCH = 16
DEFAULT_PREFILL_CHUNK = 512
MAX_THREADS = 1024
DEFAULT_CONTEXT = 4096  # of packages that declare none


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Runtime choices that do not change an answer on the reference provider.

    ``providers`` None takes the package's own list, else the CPU; ``threads`` None follows the cores of this
    process and its cgroup; ``context_length`` may only lower what the package declares. ``memory`` bounds the state of
    all sequences and the prefix cache together: bytes, a fraction of what is free, a text such as "2GiB", or "auto".

    ``cache_int8`` keeps cached prefixes as 8-bit integers: the one option that changes answers, by rounding.
    ``cache_disk`` (bytes or a text) lets them go to files in ``cache_folder`` (None: where the system has temporary
    files) before they are dropped.
    """

    backend: str = "auto"
    providers: tuple[str, ...] | None = None
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

    @staticmethod
    def of(
        *,
        backend: str = "auto",
        providers: str | Sequence[str] | None = None,
        threads: int | None = None,
        context_length: int | None = None,
        prefill_chunk: int = DEFAULT_PREFILL_CHUNK,
        max_batch: int = DEFAULT_MAX_BATCH,
        memory: str | int | float = "auto",
        prefix_cache: bool = True,
        policy: str = "priority",
        profile: str | os.PathLike[str] | None = None,
        cache_int8: bool = False,
        cache_disk: str | int | None = None,
        cache_folder: str | os.PathLike[str] | None = None,
    ) -> LoadOptions:
        """Checked options. Raises OptionError by name."""
        _one_of("backend", backend, BACKENDS)
        if cache_folder is not None and cache_disk is None:
            raise OptionError(
                "cache_folder without cache_disk",
                param="cache_folder",
                hint='say how much it may hold: cache_disk="10GiB"',
            )
        _one_of("policy", policy, tuple(POLICIES))
        return LoadOptions(
            backend,
            _providers(providers),
            None if threads is None else integer("threads", threads, 1, MAX_THREADS),
            None if context_length is None else integer("context_length", context_length, 2),
            integer("prefill_chunk", prefill_chunk, 3),
            integer("max_batch", max_batch, 1),
            memory,
            boolean("prefix_cache", prefix_cache),
            policy,
            _path("profile", "a file to write", profile),
            boolean("cache_int8", cache_int8),
            cache_disk,
            _path("cache_folder", "a folder", cache_folder),
        )


def _providers(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"providers must be a name or a list of them, not {given!r}", param="providers")
    if not names:
        raise OptionError("providers is an empty list", param="providers", hint="leave it out, or name 'cpu'")
    return tuple(names)


def _path(name: str, kind: str, given: str | os.PathLike[str] | None) -> str | None:
    if given is None or isinstance(given, str | os.PathLike):
        return None if given is None else os.fspath(given)
    raise OptionError(f"{name} must be the path of {kind}, not {given!r}", param=name)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        hint = nearest(str(value), allowed) or f"it is one of: {one_of(allowed)}"
        raise OptionError(f"unknown {name} '{value}'", param=name, hint=hint)

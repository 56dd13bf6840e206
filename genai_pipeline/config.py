"""How a package is loaded: the options of ``gp.load`` and of the command, checked once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from genai_pipeline.errors import OptionError
from genai_pipeline.option_values import boolean, integer
from genai_pipeline.problems import nearest, one_of

BACKENDS = ("auto", "ort")
POLICIES = ("priority", "first_come", "fair_share")
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
    ) -> LoadOptions:
        """Checked options. Raises OptionError by name."""
        _one_of("backend", backend, BACKENDS)
        _one_of("policy", policy, POLICIES)
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
            _profile(profile),
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


def _profile(given: str | os.PathLike[str] | None) -> str | None:
    if given is None or isinstance(given, str | os.PathLike):
        return None if given is None else os.fspath(given)
    raise OptionError(f"profile must be the path of a file to write, not {given!r}", param="profile")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        hint = nearest(str(value), allowed) or f"it is one of: {one_of(allowed)}"
        raise OptionError(f"unknown {name} '{value}'", param=name, hint=hint)

"""How a package is loaded: the options of ``gp.load`` and of the command, checked once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from genai_pipeline.errors import OptionError
from genai_pipeline.problems import nearest, one_of

BACKENDS = ("auto", "ort")
POLICIES = ("priority", "first_come", "fair_share")
DEFAULT_MAX_BATCH = 16
DEFAULT_PREFILL_CHUNK = 512
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
        _at_least("max_batch", max_batch, 1)
        _at_least("threads", threads, 1)
        _at_least("context_length", context_length, 2)
        _at_least("prefill_chunk", prefill_chunk, 3)
        names = (providers,) if isinstance(providers, str) else providers
        if names is not None and not names:
            raise OptionError("providers is an empty list", param="providers", hint="leave it out, or name 'cpu'")
        chosen = None if names is None else tuple(names)
        return LoadOptions(
            backend,
            chosen,
            threads,
            context_length,
            prefill_chunk,
            max_batch,
            memory,
            prefix_cache,
            policy,
            _profile(profile),
        )


def _profile(given: str | os.PathLike[str] | None) -> str | None:
    if given is None or isinstance(given, str | os.PathLike):
        return None if given is None else os.fspath(given)
    raise OptionError(f"profile must be the path of a file to write, not {given!r}", param="profile")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        hint = nearest(str(value), allowed) or f"it is one of: {one_of(allowed)}"
        raise OptionError(f"unknown {name} '{value}'", param=name, hint=hint)


def _at_least(name: str, value: int | None, low: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
        raise OptionError(f"{name} must be an integer of at least {low}, not {value!r}", param=name)

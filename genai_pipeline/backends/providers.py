"""Execution providers by short name: which are there, which to use, and what to say when one is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genai_pipeline.errors import ProviderUnavailableError
from genai_pipeline.metadata.session_keys import PROVIDERS
from genai_pipeline.problems import nearest, one_of

_SHORT_NAMES = {long: short for short, long in PROVIDERS.items()}
_INSTALL = {
    "cuda": "install 'genai-pipeline[gpu]' in place of 'genai-pipeline[cpu]', on a machine with an NVIDIA driver",
    "tensorrt": "install 'genai-pipeline[gpu]' and TensorRT",
    "dml": "install onnxruntime-directml (Windows) in place of onnxruntime",
    "openvino": "install onnxruntime-openvino in place of onnxruntime",
    "qnn": "install onnxruntime-qnn in place of onnxruntime",
    "coreml": "use the macOS build of onnxruntime",
}


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """Providers to load with, as the runtime names them, and what was asked for but is not there."""

    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def long_name(name: str) -> str:
    """The runtime's name of a provider; a name the runtime uses itself stays as it is."""
    if name.endswith("ExecutionProvider"):
        return name
    return PROVIDERS.get(name.lower(), name)


def short_name(name: str) -> str:
    """Our name of a provider."""
    return _SHORT_NAMES.get(name, name.removesuffix("ExecutionProvider").lower())


def choose(asked: Sequence[str], available: Sequence[str], *, required: bool) -> ProviderChoice:
    """Which of the asked providers to use, in order.

    ``required``: every one must be there. Otherwise those that are missing are passed over with a note each, as
    long as one is left. Raises ProviderUnavailableError.
    """
    names = list(dict.fromkeys(long_name(name) for name in asked)) or [PROVIDERS["cpu"]]
    missing = [name for name in names if name not in available]
    present = [name for name in names if name in available]
    if missing and (required or not present):
        raise _unavailable(missing[0], available)
    used = ", ".join(short_name(name) for name in present)
    notes = tuple(f"provider '{short_name(name)}' is not available here; using {used}" for name in missing)
    return ProviderChoice(tuple(present), notes)


def _unavailable(name: str, available: Sequence[str]) -> ProviderUnavailableError:
    short = short_name(name)
    there = [short_name(item) for item in available]
    if name in _SHORT_NAMES:
        hint = _INSTALL.get(short, f"install a build of onnxruntime that has {name}")
    else:
        hint = nearest(short, PROVIDERS) or f"known providers: {one_of(PROVIDERS, limit=20)}"
    return ProviderUnavailableError(f"provider '{short}' is not available; this runtime has {one_of(there)}", hint=hint)

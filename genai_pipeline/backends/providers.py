"""Execution providers by short name: which are there, which to use, and what to say when one is not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from genai_pipeline.errors import ProviderUnavailableError
from genai_pipeline.metadata.provider_names import label_of
from genai_pipeline.metadata.session_keys import DEFAULT_PROVIDER, PROVIDERS
from genai_pipeline.problems import nearest, one_of

_SHORT_NAMES = {long: short for short, long in PROVIDERS.items()}
INSTALL: Final[Mapping[str, str]] = {  # how to get providers that ONNX Runtime has in builds of their own
    "cuda": "install 'genai-pipeline[gpu]' in place of 'genai-pipeline[cpu]', on a machine with an NVIDIA driver",
    "tensorrt": "install 'genai-pipeline[gpu]' and TensorRT",
    "dml": "install onnxruntime-directml (Windows) in place of onnxruntime",
    "openvino": "install onnxruntime-openvino in place of onnxruntime",
    "qnn": "install onnxruntime-qnn in place of onnxruntime",
    "coreml": "use the macOS build of onnxruntime",
}


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """Providers to load with: each as it was asked for, and its name; and why others that were asked for are not."""

    found: Mapping[str, str]
    missing: Mapping[str, str] = field(default_factory=dict)  # label -> why

    @property
    def names(self) -> tuple[str, ...]:
        """The providers, the first choice first."""
        return tuple(dict.fromkeys(self.found.values()))


def long_name(name: str) -> str:
    """The runtime's name of a provider; a name the runtime uses itself stays as it is."""
    if name.endswith("ExecutionProvider"):
        return name
    return PROVIDERS.get(name.lower(), name)


def short_name(name: str) -> str:
    """Our name of a provider."""
    return _SHORT_NAMES.get(name, name.removesuffix("ExecutionProvider").lower())


def default_provider(available: Sequence[str]) -> str:
    """The provider of graphs for which none is asked: the CPU, or the first of a backend that has no such thing."""
    return DEFAULT_PROVIDER if DEFAULT_PROVIDER in available or not available else available[0]


def choose(asked: Sequence[str], find: Callable[[str], str], *, required: bool) -> ProviderChoice:
    """Which of the asked providers to use, in order; ``find`` gives the name of one, or raises.

    ``required``: every one must be there. Otherwise those that are missing are passed over, as long as one is left.
    Raises ProviderUnavailableError, OptionError.
    """
    found: dict[str, str] = {}
    errors: dict[str, ProviderUnavailableError] = {}
    for entry in asked:
        try:
            found[entry] = find(entry)
        except ProviderUnavailableError as error:
            errors[label_of(entry)] = error
    if errors and (required or not found):
        raise next(iter(errors.values()))
    return ProviderChoice(found, {label: error.message for label, error in errors.items()})


def find_built_in(
    asked: str,
    available: Collection[str],
    *,
    runtime: str = "this runtime",
    hint: str = "",
    others: Callable[[], Iterable[str]] = tuple,
) -> str:
    """The short name of a provider that a runtime has itself. Raises ProviderUnavailableError.

    ``hint``: what to do without it; by default, which build of ONNX Runtime has it. ``others``: what else there is.
    """
    name = short_name(label_of(asked))
    if name in available:
        return name
    message = f"provider '{name}' is not available; {runtime} has {one_of((*available, *others()))}"
    raise ProviderUnavailableError(message, hint=unknown_hint(name, available) or hint or _install_hint(name))


def unknown_hint(name: str, available: Collection[str]) -> str:
    """What to say of a short name that is no provider's at all; empty for one that somebody has."""
    if name in PROVIDERS or name in available:
        return ""
    known = dict.fromkeys((*available, *PROVIDERS))
    return nearest(name, known) or f"known providers: {one_of(known, limit=20)}"


def _install_hint(name: str) -> str:
    return INSTALL.get(name, f"install a build of onnxruntime that has {long_name(name)}")

"""What ``--backends`` takes: backends to compare, each with the providers it is to use, the first one the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from genai_pipeline.errors import OptionError

_FORMS: Final = "write BACKEND or BACKEND:PROVIDER+PROVIDER, e.g. ort,nxrt or ort,ort:plugin:nxrt-ep-cpu+cpu"


@dataclass(frozen=True, slots=True)
class AskedSide:
    """One backend as it was written, and its providers, the first choice first; None: those of the package."""

    text: str
    backend: str
    providers: tuple[str, ...] | None = None


def parse_sides(given: Sequence[str]) -> tuple[AskedSide, ...]:
    """The sides of a comparison; each value may be a list with commas. Raises OptionError naming what is wrong."""
    texts = [entry.strip() for text in given for entry in text.split(",")]
    sides = tuple(map(_side, texts))
    if len(sides) < 2:
        raise OptionError("a comparison takes two backends at least", param="backends", hint=_FORMS)
    twice = next((text for text in texts if texts.count(text) > 1), None)
    if twice is not None:
        raise OptionError(f"'{twice}' is there twice", param="backends", hint="name each once")
    return sides


def _side(text: str) -> AskedSide:
    from genai_pipeline.config import LoadOptions

    backend, colon, listed = text.partition(":")
    if not backend:
        raise OptionError(f"'{text}' names no backend", param="backends", hint=_FORMS)
    if backend == "plugin":
        hint = f"write ort:{text}: a plugin is a provider of a backend"
        raise OptionError("'plugin' is no backend", param="backends", hint=hint)
    LoadOptions.of(backend=backend)
    if not colon:
        return AskedSide(text, backend)
    providers = tuple(name.strip() for name in listed.split("+"))
    if any("=" in name.partition("|")[0] for name in providers):
        raise OptionError(f"the providers of '{text}' are for all components", param="backends", hint=_FORMS)
    LoadOptions.of(providers=providers)
    return AskedSide(text, backend, providers)

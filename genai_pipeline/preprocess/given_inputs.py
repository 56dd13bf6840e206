"""Inputs that are no texts: what a request gives for an image, audio, tensor, vector or items input becomes its items.

Programs run here, on the thread of the caller, before the request is handed to the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.model import InputSpec, PackageSpec
from genai_pipeline.preprocess.items import Item, check_count, with_digest
from genai_pipeline.preprocess.programs import Program
from genai_pipeline.preprocess.tensor_inputs import TENSORS, is_many, read_values

MEDIA: Final = frozenset({"image", "audio", "video"})
_DECODED: Final = 2  # a decoded sound is (samples, rate)


class GivenInputs:
    """The inputs of one package that are no texts; threads may share it."""

    def __init__(self, package: PackageSpec) -> None:
        self._programs = {
            name: Program.of(package.programs[spec.program], spec.modality)
            for name, spec in package.inputs.items()
            if spec.program is not None and spec.modality != "text"
        }

    def fields(self, spec: InputSpec) -> tuple[str, ...]:
        """The fields that the items of an input have."""
        program = self._programs.get(spec.name)
        if program is not None:
            return tuple(sorted(program.publishes))
        return ("values",) if spec.modality in TENSORS else ()

    def items(self, spec: InputSpec, sources: Sequence[tuple[str, Any]], parameters: Mapping[str, Any]) -> list[Item]:
        """The items made of sources, each with what errors call it. Raises RequestError or MediaError."""
        return [self._item(spec, source, parameters, where) for where, source in sources]

    def _item(self, spec: InputSpec, source: Any, parameters: Mapping[str, Any], where: str) -> Item:
        if spec.modality in TENSORS:
            source = read_values(spec, source, where)
        program = self._programs.get(spec.name)
        if program is not None:
            return with_digest(program.run(source, parameters, param=where))
        assert spec.modality in TENSORS, "a media input has a program, else the package is invalid"
        return with_digest({"values": source})


def sources_of(spec: InputSpec, given: Any, *, many: bool) -> list[tuple[str, Any]]:
    """What a request gives for an input, as single sources, each with its name for errors: ``images[1]``.

    An input that takes a list takes one item too; one that takes a single item takes a list of one for media.
    Raises RequestError for too many or too few.
    """
    several = _several(spec, given) if many or spec.modality in MEDIA else None
    if several is None:
        several = [given]
    check_count(spec, len(several), many=many)
    if not many:
        return [(spec.name, several[0])]
    return [(f"{spec.name}[{index}]", source) for index, source in enumerate(several)]


def absent(spec: InputSpec) -> Any:
    """What stands for an input that the request leaves out: its default, or None. Raises RequestError if required."""
    if spec.default is None and spec.required:
        raise RequestError(f"input '{spec.name}' is required", param=spec.name)
    return spec.default


def _several(spec: InputSpec, given: Any) -> list[Any] | None:
    """The items of a list; None for what is one item."""
    if spec.modality in TENSORS:
        return list(given) if is_many(spec, given) else None
    if isinstance(given, tuple) and not _is_decoded_sound(spec, given):
        return list(given)
    return list(given) if isinstance(given, list) else None


def _is_decoded_sound(spec: InputSpec, given: tuple[Any, ...]) -> bool:
    """Whether a tuple is samples with a rate, also one whose rate is wrong: samples alone are no sound."""
    if len(given) != _DECODED or not isinstance(given[0], np.ndarray | list | tuple):
        return False
    if spec.modality == "audio" and isinstance(given[0], np.ndarray):
        return not isinstance(given[1], np.ndarray | list | tuple)
    return isinstance(given[1], int | float | np.integer | np.floating)

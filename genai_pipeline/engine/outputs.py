"""Declared outputs as callers get them: texts, arrays, vectors, sounds and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from genai_pipeline.engine.iteration import Piece
from genai_pipeline.engine.scope_run import Values
from genai_pipeline.errors import RequestError
from genai_pipeline.graph.plan import ExecutionPlan, ScopePlan
from genai_pipeline.metadata.model import OutputSpec
from genai_pipeline.ops.media import Audio, Image, audio_of, images_of
from genai_pipeline.types import Event


class Outputs:
    """The outputs of one package. An output whose stages were skipped is None."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self._keys = plan.outputs
        self._specs = plan.package.outputs
        self._segments = dict(_segment_keys(plan))
        self._streamed = {
            piecewise_key(plan.root, plan.outputs[name]): spec
            for name, spec in self._specs.items()
            if spec.modality == "audio"
        }

    def of(self, values: Values) -> dict[str, Any]:
        """Every declared output of a request that is over; ``NAME.segments`` beside a text that has timed segments."""
        found = {name: output_value(self._specs[name], values[key]) for name, key in self._keys.items()}
        return {**found, **{f"{name}.segments": values[key] for name, key in self._segments.items()}}

    def events(self, pieces: Iterable[Piece]) -> Iterator[Event]:
        """Events for what has been added to sounds that are still being made."""
        for piece in pieces:
            spec = self._streamed.get(piece.key)
            if spec is not None and piece.value is not None:
                yield Event(audio=output_value(spec, piece.value))


def piecewise_key(scope: ScopePlan, key: str) -> str:
    """The key of what arrives in the smallest pieces and makes up the value ``key`` of a scope.

    That of an iterate loop inside, where each step of one loop collects just what the one inside has collected.
    """
    for stage in scope.stages:
        owner, _, name = key.removeprefix(f"{scope.id}/" if scope.id else "").partition(".")
        collect = None if stage.spec.iterate is None else stage.spec.iterate.collect.get(name)
        if owner != stage.id or collect is None or collect.scale is not None or stage.body is None:
            continue
        inner = stage.body.reads[collect.value]
        loop, _, inner_name = inner.removeprefix(f"{stage.body.id}/").partition(".")
        within = next((one.spec.iterate for one in stage.body.stages if one.id == loop and one.spec.iterate), None)
        if within is not None and inner_name in within.collect and within.collect[inner_name].axis == collect.axis:
            return piecewise_key(stage.body, inner)
    return key


def _segment_keys(plan: ExecutionPlan) -> Iterator[tuple[str, str]]:
    for name, spec in plan.package.outputs.items():
        segments = spec.options.get("segments")
        if segments is not None:
            yield name, plan.facts["segments"][name]


def output_value(spec: OutputSpec, value: Any) -> Any:
    """A value as its modality is handed out; a list of values as a list. Raises RequestError for what is none."""
    if value is None:
        return None
    if spec.modality == "vector":
        return _vector(spec, value)
    make = {"audio": _audio, "image": _image}.get(spec.modality)
    if make is None:
        return value
    if isinstance(value, list):
        return [None if one is None else make(spec, one) for one in value]
    return make(spec, value)


def _vector(spec: OutputSpec, value: Any) -> Any:
    """float [d], or [n, d] for a list of n items; a list where some of these were skipped."""
    if isinstance(value, list) and any(one is None for one in value):
        return [None if one is None else _vector(spec, one) for one in value]
    if isinstance(value, list):
        vectors = [_vector(spec, one) for one in value]
        if len({vector.shape for vector in vectors}) > 1:
            raise RequestError(f"the output '{spec.name}' has vectors of different lengths")
        return np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)
    array = np.asarray(value)
    if array.ndim == 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 1:
        raise RequestError(f"the output '{spec.name}' has shape {list(array.shape)}, which is no vector")
    return array


def _audio(spec: OutputSpec, value: Any) -> Audio:
    return audio_of(value, spec.options["rate"])


def _image(spec: OutputSpec, value: Any) -> Image | list[Image]:
    """One picture, or a list where the array has several."""
    images = images_of(value, spec.options.get("layout", "nchw"), spec.options.get("range", (0, 1)))
    return images[0] if len(images) == 1 else images

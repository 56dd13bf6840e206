"""Operations that write files: pictures, sounds, timed text, values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np

from genai_pipeline.errors import PackageError, RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.media import Image, audio_of, images_of
from genai_pipeline.ops.timed_text import Segment, to_srt, to_vtt

Values = Mapping[str, Any]


def png(inputs: Values, params: Values, context: OpContext) -> Values:
    """A PNG file of one picture."""
    return {RESULT: _picture(inputs, params, context).png()}


def jpeg(inputs: Values, params: Values, context: OpContext) -> Values:
    """A JPEG file of one picture."""
    return {RESULT: _picture(inputs, params, context).jpeg(params["quality"])}


def wav(inputs: Values, params: Values, context: OpContext) -> Values:
    """A WAV file."""
    return {RESULT: audio_of(inputs["samples"], params["rate"]).wav()}


def srt(inputs: Values, params: Values, context: OpContext) -> Values:
    """A SubRip file, in UTF-8."""
    return {RESULT: to_srt(_segments(inputs["segments"], context)).encode()}


def vtt(inputs: Values, params: Values, context: OpContext) -> Values:
    """A WebVTT file, in UTF-8."""
    return {RESULT: to_vtt(_segments(inputs["segments"], context)).encode()}


def json_(inputs: Values, params: Values, context: OpContext) -> Values:
    """A JSON file, in UTF-8."""
    text = json.dumps(plain_value(inputs["value"], context), ensure_ascii=False, indent=params["indent"])
    return {RESULT: text.encode()}


def npy(inputs: Values, params: Values, context: OpContext) -> Values:
    """An NPY file."""
    file = BytesIO()
    np.save(file, inputs["value"], allow_pickle=False)
    return {RESULT: file.getvalue()}


def plain_value(value: Any, context: OpContext) -> Any:
    """A value as JSON has it: arrays as lists. Raises RequestError for what has no such form."""
    if isinstance(value, np.ndarray | np.generic):
        return plain_value(value.tolist(), context)
    if isinstance(value, Mapping):
        return {str(key): plain_value(item, context) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item, context) for item in value]
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and np.isfinite(value)):
        return value
    raise RequestError(f"stage '{context.stage}' cannot write {value!r} as JSON")


def _segments(value: Any, context: OpContext) -> list[Segment]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, Mapping) and {"start", "end", "text"} <= item.keys() for item in value
    ):
        raise RequestError(f"stage '{context.stage}' takes segments with start, end and text")
    return [Segment.of(item) for item in value]


def _picture(inputs: Values, params: Values, context: OpContext) -> Image:
    black, white = params["range"]
    if black == white:
        raise PackageError(f"stage '{context.stage}' has one value for black and white")
    pictures = images_of(inputs["image"], params["layout"], params["range"])
    if len(pictures) != 1:
        raise RequestError(f"stage '{context.stage}' writes {len(pictures)} pictures to one file", hint="use for_each")
    return pictures[0]

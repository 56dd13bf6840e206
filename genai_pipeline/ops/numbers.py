"""Operations that draw random numbers: the same seed, stage, item and step give the same ones in any company."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.arrays import MOST
from genai_pipeline.ops.context import OpContext

Values = Mapping[str, Any]


def noise(inputs: Values, params: Values, context: OpContext) -> Values:
    """Normal or uniform numbers of a shape."""
    shape = params["shape"]
    if math.prod(shape) > MOST:
        raise RequestError(f"stage '{context.stage}' draws an array of {shape} numbers", hint=f"at most {MOST} in all")
    generator = context.generator()
    draw = generator.standard_normal if params["kind"] == "normal" else generator.random
    return {RESULT: draw(shape, np.float32) * np.float32(params["scale"])}


def gaussian(inputs: Values, params: Values, context: OpContext) -> Values:
    """mean + deviation * noise."""
    mean, spread, kind = inputs["mean"], inputs["spread"], params["spread_is"]
    if mean.shape != spread.shape:
        message = f"stage '{context.stage}' has a mean of shape {list(mean.shape)} and a spread of {list(spread.shape)}"
        raise RequestError(message)
    if kind.startswith("log_"):
        deviation = np.exp(spread * spread.dtype.type(0.5 if kind == "log_variance" else 1))
    else:
        deviation = np.sqrt(spread) if kind == "variance" else spread
    drawn = context.generator().standard_normal(mean.shape, np.float32) * np.float32(params["scale"])
    return {RESULT: (mean + deviation * drawn).astype(mean.dtype)}

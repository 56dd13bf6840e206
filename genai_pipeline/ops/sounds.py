"""Operations on sounds that a pipeline has cut or made: spectra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.context import OpContext

Values = Mapping[str, Any]


def log_mel(inputs: Values, params: Values, context: OpContext) -> Values:
    """The features of one sound."""
    from genai_pipeline.preprocess.audio.features import with_features
    from genai_pipeline.preprocess.audio.sound import Piece

    samples = np.ascontiguousarray(inputs["samples"][0], np.float32)
    piece = with_features(Piece(samples, params["rate"], len(samples)), params, f"the sound of '{context.stage}'")
    assert piece.features is not None
    return {RESULT: piece.features[None]}

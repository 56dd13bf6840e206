"""Spectra of sounds that a pipeline has cut: the same as a program's own step gives."""

from __future__ import annotations

import numpy as np
import pytest

from genai_pipeline.errors import MediaError
from genai_pipeline.metadata.call_parameters import REQUIRED
from genai_pipeline.metadata.mel_parameters import LOGS, PAD_MODES
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.registry import operation
from genai_pipeline.preprocess.audio import spectrum
from genai_pipeline.preprocess.audio.features import LOG_MEL
from genai_pipeline.preprocess.audio.sound import Piece, Sound

LOG_MEL_OP = operation("log_mel")
CONTEXT = OpContext({}, seed=0, stage="listen")


def parameters(**given: object) -> dict[str, object]:
    declared = LOG_MEL_OP.spec.parameters
    return {name: given.get(name, parameter.default) for name, parameter in declared.items()}


def test_an_operation_gives_what_the_step_gives() -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, 4000).astype(np.float32)
    given = parameters(n_fft=400, hop=160, mels=20, range=8.0, shift=4.0, scale=4.0)
    found = LOG_MEL_OP.run({"samples": samples}, given, CONTEXT)["result"]
    step = {name: value for name, value in given.items() if name != "rate"}
    whole = LOG_MEL.run(Sound("audio", Piece(samples, 16000, len(samples))), step).whole
    assert found.shape == (1, 20, 25)
    np.testing.assert_array_equal(found[0], whole.features)


def test_a_sound_too_short_for_a_frame_is_an_error() -> None:
    given = parameters(n_fft=400, hop=160, mels=20, center=False)
    with pytest.raises(MediaError, match="too few for a frame of 400"):
        LOG_MEL_OP.run({"samples": np.zeros((1, 100), np.float32)}, given, CONTEXT)


def test_every_declared_choice_is_computed() -> None:
    assert set(LOGS) == set(spectrum.LOGS)
    assert set(PAD_MODES) == set(spectrum.PAD_MODES)
    assert {name for name, parameter in LOG_MEL_OP.spec.parameters.items() if parameter.default is REQUIRED} == {
        "n_fft",
        "hop",
        "mels",
    }

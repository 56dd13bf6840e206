"""Whisper built by onnxruntime-genai's model builder: imported, it writes what that runtime writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import transformers

import genai_pipeline as gp
from genai_pipeline.importers.genai_config import import_genai_config

RATE = 16000
START, NO_TIMES = "<|startoftranscript|>", "<|notimestamps|>"
SPECIAL = ("<unk>", "<s>", "</s>", "<pad>", START, NO_TIMES, "<|0.00|>", "<|1.00|>")
COUNT = 16


@pytest.fixture(scope="module")
def whisper(tiny_model: Callable[..., Path]) -> Path:
    config = transformers.WhisperConfig(
        vocab_size=128,
        num_mel_bins=80,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
        max_target_positions=64,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=3,
        decoder_start_token_id=4,
        suppress_tokens=[],
        begin_suppress_tokens=[],
    )
    return tiny_model(transformers.WhisperForConditionalGeneration, config, SPECIAL)


@pytest.fixture
def chirp(tmp_path: Path) -> Path:
    """Two seconds that rise from 200 Hz to 2 kHz."""
    at = np.arange(2 * RATE) / RATE
    path = tmp_path / "chirp.wav"
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * (200 * at + 450 * at**2)), RATE, subtype="PCM_16")
    return path


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_transcripts_are_those_of_onnxruntime_genai(
    whisper: Path, genai_builder: Callable[..., Any], chirp: Path, tmp_path: Path, precision: str
) -> None:
    built = genai_builder(whisper, precision)
    made = tmp_path / "made"
    import_genai_config(built.path, made)
    _, problems = gp.validate(made)
    assert problems == ()
    with gp.load(made) as pipe:
        found = pipe.run({"audio": chirp}, max_new_tokens=COUNT)["text"].split()
    extractor = transformers.WhisperFeatureExtractor()
    features = extractor(soundfile.read(chirp, dtype="float32")[0], sampling_rate=RATE, return_tensors="np")
    prompt = [SPECIAL.index(START), SPECIAL.index(NO_TIMES)]
    tokens = built.greedy(prompt, COUNT, audio_features=features["input_features"])
    assert found == [f"w{token - len(SPECIAL)}" for token in tokens if token >= len(SPECIAL)]
    assert len(set(found)) > 2

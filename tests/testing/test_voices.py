"""Packages that speak and transcribe answer as their formulas say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.testing.signals import LEVEL_WORDS, tone, wav_bytes
from genai_pipeline.testing.voices import RATE, SAMPLES, speech_vocabulary, spoken, write_speaker, write_transcriber


def test_a_text_is_spoken_token_by_token(tmp_path: Path) -> None:
    tokens = speech_vocabulary().encode("abcde")
    with gp.load(write_speaker(tmp_path)) as pipe:
        sound = pipe.speak("abcde", speed=2.0)
        pieces = list(pipe.stream_speech("abcde"))
    assert sound.rate == RATE
    np.testing.assert_array_equal(sound.samples, np.array(spoken(tokens, 2.0), np.float32))
    assert [piece.samples.size for piece in pieces] == [2 * SAMPLES, 2 * SAMPLES, SAMPLES]
    joined = np.concatenate([piece.samples for piece in pieces])
    np.testing.assert_array_equal(joined, np.array(spoken(tokens), np.float32))


@pytest.mark.parametrize("level", LEVEL_WORDS)
def test_a_sound_is_written_down(tmp_path: Path, level: str) -> None:
    with gp.load(write_transcriber(tmp_path)) as pipe:
        found = pipe.transcribe(wav_bytes(tone("400Hz", level)))
    assert (found.text, found.segments) == (f"{level}400Hz", ())

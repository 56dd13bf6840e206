"""A Whisper model that mobius-onnx exports writes down here what transformers writes down."""

from __future__ import annotations

import shutil
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import genai_pipeline as gp
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.workflow import import_workflow

Build = Callable[..., Path]
MARKS = ("<unk>", "<s>", "</s>", "<pad>", "<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>")
START, END, RATE, COUNT = MARKS.index("<|startoftranscript|>"), MARKS.index("<|endoftext|>"), 16000, 20
ROWS = 100  # of the encoder: 2 seconds


def _model(tiny_model: Build, special: tuple[str, ...] = MARKS) -> Path:
    config = transformers.WhisperConfig(
        vocab_size=127, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, num_mel_bins=80, max_source_positions=ROWS,
        max_target_positions=64, bos_token_id=END, eos_token_id=END, pad_token_id=END, decoder_start_token_id=START,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    return tiny_model(transformers.WhisperForConditionalGeneration, config, special)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of a tone that rises."""
    path = tmp_path_factory.mktemp("sound") / "tone.wav"
    seconds = np.arange(2 * RATE) / RATE
    samples = (12000 * np.sin(2 * np.pi * (200 + 300 * seconds) * seconds)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return path


def _original(source: Path, sound: Path) -> list[int]:
    """Greedy tokens of transformers."""
    with wave.open(str(sound)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    extract = transformers.WhisperFeatureExtractor(feature_size=80, chunk_length=2)
    features = torch.from_numpy(extract(samples, sampling_rate=RATE, return_tensors="np").input_features)
    model = transformers.WhisperForConditionalGeneration.from_pretrained(source, dtype=torch.float32).eval()
    tokens = [START]
    with torch.no_grad():
        while len(tokens) <= COUNT and tokens[-1] != END:
            logits = model(input_features=features, decoder_input_ids=torch.tensor([tokens])).logits
            tokens.append(int(logits[0, -1].argmax()))
    return [token for token in tokens[1:] if token != END]


def test_a_document_of_a_whisper_model(tmp_path: Path, tiny_model: Build, mobius_build: Build, sound: Path) -> None:
    source = _model(tiny_model)
    folder = mobius_build(source, "--runtime", "onnx-genai")
    import_workflow(folder, tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    expected = _original(source, sound)
    words = [*MARKS, *(f"w{index}" for index in range(120))]
    with gp.load(tmp_path / "made") as pipe:
        found = pipe.run({"audio": str(sound)}, max_new_tokens=COUNT, temperature=0)["text"]
    assert found.split() == [words[token] for token in expected if token >= len(MARKS)]
    assert "context_length: 64" in (tmp_path / "made" / "inference_metadata.yaml").read_text()
    for part in ("encoder", "decoder"):
        data = f"{part}/model.onnx.data"
        assert (tmp_path / "made" / data).samefile(folder / data)


def test_without_the_marks_of_the_family_what_an_answer_starts_with_is_open(
    tmp_path: Path, tiny_model: Build, mobius_build: Build
) -> None:
    folder = mobius_build(_model(tiny_model, tuple(f"<m{index}>" for index in range(7))), "--runtime", "onnx-genai")
    with pytest.raises(ImportRefusedError, match="decoder_start_token_id: missing"):
        import_workflow(folder, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_without_the_marks_of_the_family_a_package_takes_features_as_they_are(
    tmp_path: Path, tiny_model: Build, mobius_build: Build, sound: Path
) -> None:
    source = _model(tiny_model, (*MARKS[:4], "<m4>", "<m5>", "<m6>"))
    folder = mobius_build(source, "--runtime", "onnx-genai")
    shutil.copy(source / "generation_config.json", folder)
    import_workflow(folder, tmp_path / "made", eos=[f"<m{END}>"])
    assert gp.validate(tmp_path / "made")[1] == ()
    extract = transformers.WhisperFeatureExtractor(feature_size=80, chunk_length=2)
    with wave.open(str(sound)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    features = extract(samples, sampling_rate=RATE, return_tensors="np").input_features
    with gp.load(tmp_path / "made") as pipe:
        found = pipe.run({"input_features": features}, max_new_tokens=COUNT)["text"]
    words = [f"w{token - len(MARKS)}" for token in _original(source, sound) if token >= len(MARKS)]
    assert found.split() == words
    assert "context_length: 64" in (tmp_path / "made" / "inference_metadata.yaml").read_text()

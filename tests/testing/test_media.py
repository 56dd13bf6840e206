"""The closed-form packages that see and hear: graphs and twins agree, whatever the sizes."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from PIL import Image

from genai_pipeline.backends.threads import POOL
from genai_pipeline.testing.graphs.senses import LISTEN, RATE, embedding_rows, projector_graph, vision_graph
from genai_pipeline.testing.media import write_listener, write_towers, write_vlm
from genai_pipeline.testing.packages import write_graph
from genai_pipeline.testing.signals import COLOURS, LEVEL_WORDS, PITCH_WORDS, quarters, tone, wav_bytes


def session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    POOL.ensure(ort, None)  # once it exists, sessions with threads of their own are refused
    options.use_per_session_threads = False
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def test_pictures_have_the_colours_of_their_names() -> None:
    picture = quarters("red", "green", "blue", "yellow", side=6)
    assert (picture.shape, picture.dtype) == ((6, 6, 3), np.uint8)
    assert picture[0, 0].tolist() == [255, 0, 0]
    assert picture[0, 5].tolist() == [0, 255, 0]
    assert picture[5, 0].tolist() == [0, 0, 255]
    assert picture[5, 5].tolist() == [255, 255, 0]


def test_quarters_become_the_words_of_their_colours(tmp_path: Path) -> None:
    words = list(range(300, 308))
    vision = session(write_graph(tmp_path / "vision.onnx", vision_graph()))
    projector = session(write_graph(tmp_path / "projector.onnx", projector_graph(words)))
    for colours in itertools.islice(itertools.product(COLOURS, repeat=4), 0, None, 97):
        small = Image.fromarray(quarters(*colours)).resize((4, 4), Image.Resampling.BOX)
        pixels = np.asarray(small, np.float32).transpose(2, 0, 1)[None] / 255
        (features,) = vision.run(None, {"pixel_values": pixels})
        (rows,) = projector.run(None, {"features": features})
        np.testing.assert_array_equal(rows[0], embedding_rows([words[COLOURS.index(colour)] for colour in colours]))


def test_sounds_become_words_for_level_and_pitch(tmp_path: Path) -> None:
    package = write_listener(tmp_path)
    ear = session(package.path / "ear.onnx")
    for level, pitch in itertools.product(LEVEL_WORDS, PITCH_WORDS):
        (rows,) = ear.run(None, {"samples": tone(pitch, level)[None]})
        np.testing.assert_array_equal(rows[0], embedding_rows(package.vocabulary.id_list([level, pitch])))


def test_towers_put_a_pitch_and_its_word_in_one_place(tmp_path: Path) -> None:
    package = write_towers(tmp_path)
    texts, sounds = (session(package.path / f"{name}_tower.onnx") for name in ("text", "sound"))
    ids = np.array([package.vocabulary.encode(f"a {pitch}!") for pitch in PITCH_WORDS])
    (words,) = texts.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    (vectors,) = sounds.run(None, {"samples": np.stack([tone(pitch) for pitch in PITCH_WORDS])})
    np.testing.assert_array_equal(words, np.eye(8))
    np.testing.assert_allclose(vectors, 0.8 * np.eye(8), atol=1e-5)
    (masked,) = texts.run(None, {"input_ids": ids, "attention_mask": np.zeros_like(ids)})
    assert not masked.any()


@pytest.mark.parametrize("sums", [False, True])
def test_the_twin_knows_what_is_answered(tmp_path: Path, sums: bool) -> None:
    package = write_vlm(tmp_path, sums=sums)
    vocabulary = package.vocabulary
    prompt = vocabulary.chat_prompt(("user", "<image>" * 4))
    seen = ("red", "white", "black", "red")
    answer = package.answer(prompt, seen, 8)
    if sums:
        assert answer != package.answer(prompt, seen[::-1], 8)
    else:
        assert vocabulary.decode(answer) == "redwhiteblackred"
    assert package.answer(vocabulary.chat_prompt(("user", "x")), (), 8) == [] or sums


def test_wav_files_hold_the_samples() -> None:
    import soundfile

    read, rate = soundfile.read(io.BytesIO(wav_bytes(tone("400Hz"))), dtype="float32")
    assert (rate, len(read)) == (RATE, LISTEN)
    np.testing.assert_allclose(read, tone("400Hz"), atol=1e-4)

"""Every closed-form graph against its twin under plain onnxruntime: alone, chunked, batched and ragged."""

from __future__ import annotations

import numpy as np
import pytest

from genai_pipeline.testing import write_package

PROMPT = [7, 50, 8, 31, 31, 90, 12]
PROMPTS = ([40], [7, 8, 9], PROMPT)
COUNT = 10

CACHES = [
    {"update": "append"},
    {"update": "append", "positions": "mask"},
    {"update": "append", "dtype": "float16", "logits": "float16"},
    {"update": "append", "dtype": "float32", "value_dtype": "float16"},
    {"update": "in_place"},
    {"update": "in_place", "positions": "input"},
    {"update": "in_place", "dtype": "float16", "logits": "float16"},
    {"update": "scatter"},
    {"update": "scatter", "dtype": "float16", "value_dtype": "float32"},
]
BFLOAT16 = [{"update": update, "dtype": "bfloat16"} for update in ("append", "scatter")]
OTHERS = [
    ("table", {}),
    ("table", {"table": {"a": "b", "b": "a"}}),
    ("pos", {"logits": "float16"}),
    ("flat", {}),
    ("recurrent", {}),
    ("recurrent", {"dtype": "float16", "layers": 3}),
    ("recurrent", {"dtype": "bfloat16", "padded": False}),
    ("kv", {"layers": 3, "heads": 1, "head_dim": 16, "size": 200, "end_at": 11}),
    ("script", {"scripts": {"a": ["x", "y", "x"]}}),
]


def name_of(options: dict) -> str:
    return "-".join(str(value) for value in options.values())


@pytest.mark.parametrize("options", [*CACHES, *BFLOAT16], ids=name_of)
@pytest.mark.parametrize("kind", ["kv", "script"])
def test_alone_and_chunked(tmp_path, bare_loop, kind, options):
    package = write_package(tmp_path, kind, **options)
    prompt = [*PROMPT, package.vocabulary.id("<|go|>"), 50] if kind == "script" else PROMPT
    expected = package.expected(prompt, COUNT)
    assert bare_loop(tmp_path / "model.onnx").generate([prompt], COUNT) == [expected]
    for chunk in (1, 2, 3):
        assert bare_loop(tmp_path / "model.onnx").generate([prompt], COUNT, chunk=chunk) == [expected]


@pytest.mark.parametrize("options", CACHES, ids=name_of)
@pytest.mark.parametrize("kind", ["kv", "script"])
def test_batched_and_ragged(tmp_path, bare_loop, kind, options):
    package = write_package(tmp_path, kind, **options)
    for prompts in (PROMPTS, PROMPTS[::-1], (PROMPTS[1], PROMPTS[2], PROMPTS[0])):
        rows = bare_loop(tmp_path / "model.onnx", rows=3).generate(prompts, COUNT)
        assert rows == [package.expected(prompt, COUNT) for prompt in prompts]


@pytest.mark.parametrize("update", ["append", "scatter"])
def test_several_tokens_on_ragged_pasts(tmp_path, bare_loop, update):
    package = write_package(tmp_path, "kv", update=update)
    loop = bare_loop(tmp_path / "model.onnx", rows=3)
    loop.run([[5], [6, 7, 8], [9, 10]])
    logits = loop.run([[40, 41, 42], [43], [44, 45]])
    whole = ([5, 40, 41, 42], [6, 7, 8, 43], [9, 10, 44, 45])
    assert logits.argmax(-1).tolist() == [package.expected(tokens, 1)[0] for tokens in whole]


@pytest.mark.parametrize(("kind", "options"), OTHERS)
def test_other_kinds(tmp_path, bare_loop, kind, options):
    package = write_package(tmp_path, kind, **options)
    expected = package.expected(PROMPT, COUNT)
    assert bare_loop(tmp_path / "model.onnx").generate([PROMPT], COUNT) == [expected]
    assert bare_loop(tmp_path / "model.onnx").generate([PROMPT], COUNT, chunk=2) == [expected]


@pytest.mark.parametrize("kind", ["table", "pos", "recurrent"])
def test_other_kinds_batched(tmp_path, bare_loop, kind):
    package = write_package(tmp_path, kind)
    rows = bare_loop(tmp_path / "model.onnx", rows=3).generate(PROMPTS, COUNT)
    assert rows == [package.expected(prompt, COUNT) for prompt in PROMPTS]


def test_two_components_answer_like_one(tmp_path, bare_loop, run_once):
    package = write_package(tmp_path, "embeds", update="append")
    assert package.expected(PROMPT, COUNT) == write_package(tmp_path / "kv", "kv").expected(PROMPT, COUNT)
    tokens = [*PROMPT]
    loop = bare_loop(tmp_path / "model.onnx")
    new = PROMPT
    for expected in package.expected(PROMPT, COUNT):
        embeds = run_once(tmp_path / "embed.onnx", {"input_ids": np.array([new])})["inputs_embeds"]
        loop.given = {"inputs_embeds": embeds}
        new = [int(loop.run([new])[0].argmax())]
        assert new == [expected]
        tokens += new


def test_cross_cache_from_an_encoder(tmp_path, bare_loop, run_once):
    package = write_package(tmp_path, "cross", update="append", dtype="float16")
    sources = ([5, 6, 7, 8], [8, 7, 6, 50])
    states = run_once(tmp_path / "encoder.onnx", {"input_ids": np.array(sources)})
    given = {name.replace("cross", "cross_key_values"): value for name, value in states.items()}
    start = package.vocabulary.id("<s>")
    rows = bare_loop(tmp_path / "model.onnx", rows=2, **given).generate([[start], [start]], COUNT)
    assert rows == [package.expected(source, COUNT) for source in sources]
    assert rows[0] != rows[1]


def test_cross_cache_captured_from_the_first_run(tmp_path, bare_loop, run_once):
    package = write_package(tmp_path, "cross", update="append", captured=True)
    source = [5, 6, 7, 8]
    states = run_once(tmp_path / "encoder.onnx", {"input_ids": np.array([source])})
    start = package.vocabulary.id("<s>")
    loop = bare_loop(tmp_path / "model.onnx", **states)
    assert loop.generate([[start]], COUNT) == [package.expected(source, COUNT)]


def test_cross_cache_that_is_not_kept_is_noticed(tmp_path, bare_loop, run_once):
    package = write_package(tmp_path, "cross", update="append", captured=True)
    source = [5, 6, 7, 8]
    states = run_once(tmp_path / "encoder.onnx", {"input_ids": np.array([source])})
    empty = {f"cross_key_values.{layer}.{part}": np.zeros((1, 2, 0, 8), np.float32)
             for layer in (0, 1) for part in ("key", "value")}  # fmt: skip
    loop = bare_loop(tmp_path / "model.onnx", **states, **empty)
    assert loop.generate([[package.vocabulary.id("<s>")]], COUNT) != [package.expected(source, COUNT)]


def test_flat_has_the_given_probabilities(tmp_path, bare_loop):
    package = write_package(tmp_path, "flat", probabilities={"a": 0.5, "b": 0.3, "c": 0.2})
    logits = bare_loop(tmp_path / "model.onnx").run([PROMPT])[0].astype(np.float64)
    probabilities = np.exp(logits) / np.exp(logits).sum()
    wanted = np.zeros_like(probabilities)
    wanted[package.vocabulary.id_list("abc")] = [0.5, 0.3, 0.2]
    np.testing.assert_allclose(probabilities, wanted, atol=1e-6)
    assert package.expected(PROMPT, 3) == [package.vocabulary.id("a")] * 3


def test_answers_stand_out(tmp_path, bare_loop):
    write_package(tmp_path, "kv", peak=20.0)
    logits = np.sort(bare_loop(tmp_path / "model.onnx").run([PROMPT])[0])
    assert logits[-1] == 20.0
    assert logits[-2] <= 10.0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_long_contexts_stay_exact(tmp_path, bare_loop, dtype):
    package = write_package(tmp_path, "kv", update="append", dtype=dtype)
    prompt = [6 + (index * index + 3 * index) % 97 for index in range(2500)]
    loop = bare_loop(tmp_path / "model.onnx")
    assert loop.generate([prompt], 4, chunk=500) == [package.expected(prompt, 4)]

"""Every storage kind with real graphs: what a row remembers depends on its own tokens only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from genai_pipeline.kv import memory, pool

GATHERED = ("gathered in_place", "gathered scatter")
DEVICE = ("device in_place", "device scatter")
KINDS = ("in_place", "append", "scatter", "replace", "fixed", *GATHERED, *DEVICE)
TOKENS = ("in_place", "append", "scatter", "fixed", *GATHERED, *DEVICE)  # kinds that can be cut at any token
PROMPTS = ([7, 8, 9], [10, 11, 12, 13, 14, 15, 16], [9, 7])
Make = Callable[..., Any]


@pytest.fixture(params=["sparse", "plain"])
def any_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test on reserved memory and on the ordinary memory that other systems get."""
    if request.param == "plain":
        monkeypatch.setattr(memory, "overcommits", lambda: False)
        monkeypatch.setattr(pool, "overcommits", lambda: False)


@pytest.mark.parametrize("update", KINDS)
@pytest.mark.usefixtures("any_memory")
def test_a_row_alone_gives_the_closed_form_answer(decoder: Make, update: str) -> None:
    model = decoder(update)
    for prompt in PROMPTS:
        row = model.open()
        first = model.prefill(row, prompt)
        tokens = [first, *model.generate([row], {row: first}, 7)[row]]
        assert tokens == model.alone(prompt, 8)


@pytest.mark.parametrize("chunk", [2, 3, 4])
@pytest.mark.parametrize("update", KINDS)
def test_a_prompt_in_chunks_equals_the_whole(decoder: Make, update: str, chunk: int) -> None:
    model = decoder(update)
    prompt = list(range(7, 19))
    whole, parts = model.open(), model.open()
    assert model.prefill(whole, prompt) == model.prefill(parts, prompt, chunk) == model.alone(prompt, 1)[0]
    saved = [model.pool.save(row, 0, 12)["decoder"][0] for row in (whole, parts)]
    for one, other in zip(*saved, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("update", KINDS)
def test_rows_of_different_lengths_decode_together_as_alone(decoder: Make, update: str) -> None:
    model = decoder(update)
    rows = [model.open() for _ in PROMPTS]
    last = {row: model.prefill(row, prompt) for row, prompt in zip(rows, PROMPTS, strict=True)}
    firsts = dict(last)
    out = model.generate(rows, last, 6)
    for row, prompt in zip(rows, PROMPTS, strict=True):
        assert [firsts[row], *out[row]] == model.alone(prompt, 7)


@pytest.mark.parametrize("update", KINDS)
def test_rows_join_and_leave_a_batch(decoder: Make, update: str) -> None:
    model = decoder(update)
    a, b, c = (model.open() for _ in range(3))
    last = {a: model.prefill(a, PROMPTS[0])}
    out = {row: [] for row in (a, b, c)}
    out[a].append(last[a])

    def together(*rows: int) -> None:
        for row, tokens in model.generate(rows, last, 2).items():
            out[row] += tokens

    together(a)
    last[b] = model.prefill(b, PROMPTS[1])
    out[b].append(last[b])
    together(a, b)
    last[c] = model.prefill(c, PROMPTS[2])
    out[c].append(last[c])
    together(a, b, c)
    model.pool.release(a)
    together(b, c)
    together(b)
    together(c)
    for row, prompt in zip((a, b, c), PROMPTS, strict=True):
        assert out[row] == model.alone(prompt, len(out[row]))


@pytest.mark.parametrize("update", ["append", "scatter", "gathered scatter"])
def test_several_tokens_on_top_of_different_pasts_in_one_run(decoder: Make, update: str) -> None:
    model = decoder(update)
    rows = [model.open() for _ in PROMPTS]
    for row, prompt in zip(rows, PROMPTS, strict=True):
        model.prefill(row, prompt)
    more = {row: [20 + i, 9, 8, 7][: 4 - i] for i, row in enumerate(rows)}  # 4, 3 and 2 tokens
    if update != "append":
        more = {row: tokens[:2] for row, tokens in more.items()}
    logits = model.run(more)
    last = {row: model.choose(logits, i, len(more[row])) for i, row in enumerate(rows)}
    firsts = dict(last)
    out = model.generate(rows, last, 4)
    for row, prompt in zip(rows, PROMPTS, strict=True):
        assert [firsts[row], *out[row]] == model.alone([*prompt, *more[row]], 5)


@pytest.mark.parametrize("update", TOKENS)
def test_a_first_prefill_of_several_rows_is_padded(decoder: Make, update: str) -> None:
    model = decoder(update)
    rows = [model.open() for _ in PROMPTS]
    logits = model.run(dict(zip(rows, PROMPTS, strict=True)))
    last = {row: model.choose(logits, i, len(PROMPTS[i])) for i, row in enumerate(rows)}
    firsts = dict(last)
    out = model.generate(rows, last, 3)
    for row, prompt in zip(rows, PROMPTS, strict=True):
        assert [firsts[row], *out[row]] == model.alone(prompt, 4)


@pytest.mark.parametrize("update", TOKENS)
@pytest.mark.usefixtures("any_memory")
def test_tokens_taken_back_leave_no_trace(decoder: Make, update: str) -> None:
    model = decoder(update)
    row = model.open()
    model.prefill(row, PROMPTS[1])
    model.run({row: [20, 21, 22, 23]}, keep={row: 1})  # three of four rejected
    logits = model.run({row: [9, 8]})
    assert model.choose(logits, 0, 2) == model.alone([*PROMPTS[1], 20, 9, 8], 1)[0]
    model.truncate(row, 4)
    first = model.prefill(row, [17, 18])
    out = model.generate([row], {row: first}, 3)[row]
    assert [first, *out] == model.alone([*PROMPTS[1][:4], 17, 18], 4)


@pytest.mark.parametrize("update", KINDS)
@pytest.mark.usefixtures("any_memory")
def test_a_moved_row_goes_on_as_if_nothing_happened(decoder: Make, update: str) -> None:
    model = decoder(update)
    a, b, c = (model.open() for _ in range(3))
    model.prefill(a, PROMPTS[2])
    last = {row: model.prefill(row, prompt) for row, prompt in ((b, PROMPTS[0]), (c, PROMPTS[1]))}
    firsts = [last[b], last[c]]
    model.release(a)
    model.move(c, a)
    last[a] = last.pop(c)
    out = model.generate([a, b], last, 5)
    assert [firsts[0], *out[b]] == model.alone(PROMPTS[0], 6)
    assert [firsts[1], *out[a]] == model.alone(PROMPTS[1], 6)
    assert model.open() == c
    assert model.prefill(c, PROMPTS[2]) == model.alone(PROMPTS[2], 1)[0]


@pytest.mark.parametrize("update", TOKENS)
@pytest.mark.usefixtures("any_memory")
def test_saved_tokens_loaded_elsewhere_replay_exactly(decoder: Make, update: str) -> None:
    model = decoder(update)
    source, target = model.open(), model.open()
    prompt = [*PROMPTS[1], *PROMPTS[0]]
    first = model.prefill(source, prompt)
    head, tail = model.pool.save(source, 0, 6), model.pool.save(source, 6, 10)
    model.pool.release(source)
    assert model.pool.reserve(target, 10)
    model.pool.load(target, 0, 6, head)
    model.pool.load(target, 6, 10, tail)
    model.rows[target] = list(prompt)
    out = model.generate([target], {target: first}, 5)[target]
    assert [first, *out] == model.alone(prompt, 6)


@pytest.mark.parametrize("update", KINDS)
@pytest.mark.usefixtures("any_memory")
def test_a_row_used_before_starts_clean(decoder: Make, update: str) -> None:
    model = decoder(update, max_rows=1)
    for prompt in (PROMPTS[1], PROMPTS[2], PROMPTS[0]):
        row = model.open()
        first = model.prefill(row, prompt)
        assert [first, *model.generate([row], {row: first}, 4)[row]] == model.alone(prompt, 5)
        model.pool.release(row)


@pytest.mark.parametrize(
    ("update", "options"),
    [
        ("in_place", {"dtype": "float16"}),
        ("append", {"dtype": "float16"}),
        ("append", {"dtype": "bfloat16"}),
        ("append", {"dtype": "float32", "value_dtype": "float16"}),
        ("scatter", {"dtype": "float16"}),
        ("append", {"positions": "mask"}),
        ("in_place", {"positions": "input"}),
    ],
)
def test_dtypes_are_those_of_the_graph_per_tensor(decoder: Make, update: str, options: dict[str, str]) -> None:
    model = decoder(update, **options)
    row = model.open()
    first = model.prefill(row, PROMPTS[1])
    assert [first, *model.generate([row], {row: first}, 6)[row]] == model.alone(PROMPTS[1], 7)
    saved = model.pool.save(row, 0, 4)["decoder"][0]
    names = {tensor.dtype.name for tensor in saved}
    assert names == {options.get("dtype", "float32"), options.get("value_dtype", options.get("dtype", "float32"))}


@pytest.mark.parametrize("update", KINDS)
def test_a_failed_run_changes_nothing(decoder: Make, update: str) -> None:
    model = decoder(update)
    row = model.open()
    model.prefill(row, PROMPTS[1])
    model.pool.reserve(row, 10)
    model.pool.bind("decoder", model.binding, (row,), (7,), (2,))  # ... and no run, no commit
    first = model.prefill(row, [17, 18])
    assert first == model.alone([*PROMPTS[1], 17, 18], 1)[0]

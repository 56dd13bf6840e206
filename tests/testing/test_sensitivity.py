"""Closed-form graphs are only useful if a mistake changes the answer: each kind of mix-up, injected, must show."""

from __future__ import annotations

import numpy as np
import pytest

from genai_pipeline.testing import write_package

PROMPTS = ([7, 50, 8, 31, 31], [9, 12, 60, 61, 62])
COUNT = 6
UPDATES = ["append", "in_place", "scatter"]


def wrong_after_prefill(fault):
    """Inject ``fault(feeds)`` into every run after the first."""
    runs = []

    def edit(feeds: dict) -> None:
        runs.append(1)
        if len(runs) > 1:
            fault(feeds)

    return edit


def edit_caches(change):
    """A fault that rewrites every cache tensor's numpy value."""

    def fault(feeds: dict) -> None:
        for name, value in feeds.items():
            if name.startswith("past_"):
                feeds[name] = change(name, value if isinstance(value, np.ndarray) else value.numpy())

    return fault


def swap_rows(name, cache):
    return cache[::-1]


def lose_a_page(name, cache):
    changed = cache.copy()
    changed[:, :, 1:3] = 0
    return changed


def reorder_tokens(name, cache):
    changed = cache.copy()
    changed[:, :, :4] = cache[:, :, [1, 2, 3, 0]]
    return changed


def swap_heads(name, cache):
    return cache[:, ::-1]


def swap_parts(feeds: dict) -> None:
    for layer in (0, 1):
        key, value = (f"past_key_values.{layer}.{part}" for part in ("key", "value"))
        feeds[key], feeds[value] = feeds[value], feeds[key]


def swap_layers(feeds: dict) -> None:
    for part in ("key", "value"):
        first, second = (f"past_key_values.{layer}.{part}" for layer in (0, 1))
        feeds[first], feeds[second] = feeds[second], feeds[first]


FAULTS = [
    *(edit_caches(change) for change in (swap_rows, lose_a_page, reorder_tokens, swap_heads)),
    swap_parts,
    swap_layers,
]


def answers(package, bare_loop, fault):
    loop = bare_loop(package.path / "model.onnx", rows=2, edit=wrong_after_prefill(fault))
    return loop.generate(PROMPTS, COUNT)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("fault", FAULTS)
def test_cache_mix_ups_show(tmp_path, bare_loop, update, fault):
    package = write_package(tmp_path, "kv", update=update)
    right = [package.expected(prompt, COUNT) for prompt in PROMPTS]
    wrong = answers(package, bare_loop, fault)
    assert answers(package, bare_loop, lambda feeds: None) == right
    assert all(a != b for a, b in zip(wrong, right, strict=True))


def test_recurrent_state_mix_ups_show(tmp_path, bare_loop):
    package = write_package(tmp_path, "recurrent")
    right = [package.expected(prompt, COUNT) for prompt in PROMPTS]
    assert answers(package, bare_loop, edit_caches(swap_rows)) != right
    assert answers(package, bare_loop, edit_caches(lambda name, state: state * 0)) != right


FEEDS = [
    ("append", "position_ids", lambda value: value + 1),
    ("append", "position_ids", lambda value: value * 0),
    ("append", "attention_mask", lambda value: np.concatenate([value[:, :1] * 0, value[:, 1:]], axis=1)),
    ("in_place", "attention_mask", lambda value: np.concatenate([value[:, :1] * 0, value[:, 1:]], axis=1)),
    ("scatter", "write_indices", lambda value: value - 1),
    ("scatter", "nonpad_kv_seqlen", lambda value: value - 1),
    ("pos", "position_ids", lambda value: value + 1),
    ("pos", "attention_mask", lambda value: np.concatenate([value, value[:, :1]], axis=1)),
    ("pos", "attention_mask", lambda value: value[:, 1:]),
    ("recurrent", "sequence_lengths", lambda value: value * 0),
]


@pytest.mark.parametrize(("kind", "port", "change"), FEEDS)
def test_wrong_feeds_show(tmp_path, bare_loop, kind, port, change):
    options = {"update": kind} if kind in UPDATES else {}
    package = write_package(tmp_path, "kv" if options else kind, **options)

    def fault(feeds: dict) -> None:
        feeds[port] = change(feeds[port])

    wrong = answers(package, bare_loop, fault)
    right = [package.expected(prompt, COUNT) for prompt in PROMPTS]
    assert all(a != b for a, b in zip(wrong, right, strict=True))


@pytest.mark.parametrize("change", [[7, 50, 8, 31, 32], [50, 7, 8, 31, 31], [8, 50, 7, 31, 31], [7, 8, 31, 31]])
@pytest.mark.parametrize("kind", ["kv", "recurrent"])
def test_every_prompt_token_and_its_place_matter(tmp_path, kind, change):
    package = write_package(tmp_path, kind)
    assert package.expected(PROMPTS[0], COUNT) != package.expected(change, COUNT)

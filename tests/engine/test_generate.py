"""Tokens of the engine against the arithmetic of the closed-form graphs."""

from __future__ import annotations

from typing import Any

import pytest

from genai_pipeline.engine.lane import Lane

PROMPTS = (1, 2, 3, 5, 17, 40)


@pytest.mark.parametrize("chunk", [3, 4, 16, 512])
@pytest.mark.parametrize("update", ["in_place", "append", "scatter"])
def test_tokens_are_those_of_the_arithmetic_for_any_chunk(open_tiny: Any, update: str, chunk: int) -> None:
    pipe, package = open_tiny("kv", update=update, load={"prefill_chunk": chunk})
    for length in PROMPTS:
        prompt = package.vocabulary.encode("abcdefghij" * 4)[:length]
        result = pipe.generate(tokens=prompt, max_new_tokens=12, temperature=0)
        assert list(result.tokens) == package.answer(prompt, 12)
        assert result.usage.prompt_tokens == length


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float16"},
        {"update": "append", "dtype": "float32", "value_dtype": "float16"},
        {"logits": "float16"},
        {"update": "append", "dtype": "float16"},
        {"update": "append", "positions": "mask"},
        {"update": "in_place", "positions": "input"},
    ],
    ids=str,
)
def test_cache_and_logit_types_follow_the_graph(open_tiny: Any, options: dict[str, Any]) -> None:
    pipe, package = open_tiny("kv", **options)
    prompt = package.vocabulary.encode("hello world")
    assert list(pipe.generate(tokens=prompt, max_new_tokens=8, temperature=0).tokens) == package.answer(prompt, 8)


@pytest.mark.parametrize("update", ["in_place", "append", "scatter"])
def test_two_components_give_the_answers_of_one(open_tiny: Any, update: str) -> None:
    pipe, package = open_tiny("embeds", update=update, load={"prefill_chunk": 4})
    prompt = package.vocabulary.encode("two graphs, one answer")
    assert list(pipe.generate(tokens=prompt, max_new_tokens=10, temperature=0).tokens) == package.answer(prompt, 10)


def test_requests_after_one_another_do_not_see_each_others_state(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    prompts = [package.vocabulary.encode(text) for text in ("one", "another one", "one")]
    for prompt in prompts:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=9, temperature=0).tokens) == package.answer(prompt, 9)


@pytest.mark.parametrize("length", [16, 120])
def test_each_decode_step_runs_one_token(open_tiny: Any, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, package = open_tiny("kv")
    widths: list[int] = []
    run = Lane.run

    def traced(self: Lane, batch: Any) -> Any:
        widths.append(batch.width)
        return run(self, batch)

    monkeypatch.setattr(Lane, "run", traced)
    pipe.generate(tokens=package.vocabulary.encode("x" * length), max_new_tokens=6, temperature=0, ignore_eos=True)
    assert widths == [length, 1, 1, 1, 1, 1]


def test_the_chat_template_makes_a_turn_of_a_plain_prompt(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    prompt = package.vocabulary.chat_prompt(("user", "hello"))
    expected = package.answer(prompt, 6)
    assert list(pipe.generate("hello", max_new_tokens=6, temperature=0).tokens) == expected
    messages = [{"role": "user", "content": "hello"}]
    assert list(pipe.generate(messages=messages, max_new_tokens=6, temperature=0).tokens) == expected
    raw = package.vocabulary.encode("hello", parse_special=True)
    assert list(pipe.generate("hello", raw=True, max_new_tokens=6, temperature=0).tokens) == package.answer(raw, 6)


def test_run_gives_declared_outputs(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    prompt = package.vocabulary.chat_prompt(("user", "hello"))
    outputs = pipe.run({"prompt": "hello"}, max_new_tokens=6, temperature=0)
    assert outputs == {"text": package.answer_text(prompt, 6)}

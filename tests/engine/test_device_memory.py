"""State in memory that the host cannot address: the engine's answers are the same, and only what must crosses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from genai_pipeline.backends import ort, registry
from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.ort_memory import OrtMemory, OrtPlace
from genai_pipeline.errors import CapacityError
from genai_pipeline.kv import pool
from genai_pipeline.kv.device_arena import DeviceArenaStorage
from genai_pipeline.testing.devices import SeparateBackend, SeparateMemory

UPDATES = ["in_place", "scatter"]
TEXTS = ["a", "bcd", "efghijk", "l" * 17, "mn" * 20, "op", "q" * 33, "rst"]
TOKEN_BYTES = 2 * 2 * 2 * 8 * 4  # layers, parts, heads, head_dim, float32
Open = Callable[..., tuple[Any, Any]]


@pytest.fixture
def memory() -> Iterator[SeparateMemory]:
    """The memory of a backend "emulated" that is there during the test."""
    made = SeparateMemory()
    registry.register("emulated", lambda threads: SeparateBackend(OrtBackend(threads), made))
    yield made
    registry.unregister("emulated")


@pytest.fixture(params=["emulated", "runtime"])
def open_device(
    request: pytest.FixtureRequest, open_tiny: Any, memory: SeparateMemory, monkeypatch: pytest.MonkeyPatch
) -> Open:
    """Loads packages on the emulated backend, or on the runtime's own path for devices with the CPU as the device."""
    runs_on_ort = request.param == "runtime"
    if runs_on_ort:
        monkeypatch.setattr(ort, "device_memory", lambda runtime, *_: OrtMemory(runtime, OrtPlace("cpu", 0, "cpu")))

    def open_(kind: str = "kv", *, load: dict[str, Any] | None = None, **options: Any) -> tuple[Any, Any]:
        backend = "ort" if runs_on_ort else "emulated"
        pipe, package = open_tiny(kind, load={"backend": backend, **(load or {})}, **options)
        (storage,) = (
            storage for found in pipe._assembly.pools.values() for storage in found._flat if storage.pad_side == "right"
        )
        assert isinstance(storage, DeviceArenaStorage)
        return pipe, package

    return open_


def together(pipe: Any, prompts: list[list[int]], **options: Any) -> list[list[int]]:
    streams = [pipe.stream(tokens=prompt, temperature=0, **options) for prompt in prompts]
    return [[event.token for event in stream if event.token is not None] for stream in streams]


@pytest.mark.parametrize("update", UPDATES)
def test_batched_and_chunked_is_alone(open_device: Open, update: str) -> None:
    pipe, package = open_device(update=update, load={"max_batch": 3, "prefill_chunk": 16})
    prompts = [package.vocabulary.encode(text) for text in TEXTS]
    assert together(pipe, prompts, max_new_tokens=11) == [package.answer(prompt, 11) for prompt in prompts]
    assert together(pipe, prompts[::-1], max_new_tokens=7) == [package.answer(prompt, 7) for prompt in prompts[::-1]]


@pytest.mark.parametrize("update", UPDATES)
def test_preempted_sequences_come_back(open_device: Open, update: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "pays_in_full", lambda *_, **__: False)  # more rows than pages: some have to leave
    size = 18 * 16 * TOKEN_BYTES * 4 // 3 + 1000
    pipe, package = open_device(update=update, load={"max_batch": 6, "memory": size, "prefix_cache": False})
    prompts = [package.vocabulary.encode(text) for text in TEXTS[:6]]
    expected = [package.expected(prompt, 120) for prompt in prompts]
    assert together(pipe, prompts, max_new_tokens=120, ignore_eos=True) == expected


@pytest.mark.parametrize("update", UPDATES)
def test_choices_share_a_prompt(open_device: Open, update: str) -> None:
    pipe, package = open_device(update=update, load={"max_batch": 4, "prefix_cache": False})
    prompt = package.vocabulary.encode("y" * 60)
    result = pipe.generate(tokens=prompt, n=3, temperature=0, max_new_tokens=8)
    assert [list(choice.tokens) for choice in result.choices] == [package.answer(prompt, 8)] * 3


def test_forks_stay_on_the_device(open_tiny: Any, memory: SeparateMemory) -> None:
    pipe, package = open_tiny(load={"backend": "emulated", "max_batch": 4, "prefix_cache": False})
    prompt = package.vocabulary.encode("y" * 60)
    pipe.generate(tokens=prompt, n=3, temperature=0, max_new_tokens=8)
    crossings = memory.crossings
    assert crossings.copied >= 2 * 58 * TOKEN_BYTES
    assert (crossings.read, crossings.written) == (0, 0)


@pytest.mark.parametrize("update", UPDATES)
def test_prefixes_come_from_the_cache(open_device: Open, update: str) -> None:
    pipe, package = open_device(update=update)
    prompt = package.vocabulary.encode("abcdefghij" * 10)
    for cached in (0, 96, 96):
        result = pipe.generate(tokens=prompt, temperature=0, max_new_tokens=9)
        assert list(result.tokens) == package.answer(prompt, 9)
        assert result.usage.cached_tokens == cached


def test_a_prefix_crosses_once_and_alone(open_tiny: Any, memory: SeparateMemory) -> None:
    pipe, package = open_tiny(load={"backend": "emulated"})
    prompt = package.vocabulary.encode("abcdefghij" * 10)
    pipe.generate(tokens=prompt, temperature=0, max_new_tokens=4, ignore_eos=True)
    pipe.generate(tokens=prompt, temperature=0, max_new_tokens=4, ignore_eos=True)
    assert memory.crossings.read == 96 * TOKEN_BYTES  # the whole pages of the first request
    assert memory.crossings.written == 96 * TOKEN_BYTES


@pytest.mark.parametrize("update", UPDATES)
def test_sessions_fork_and_rewind(open_device: Open, update: str) -> None:
    pipe, _ = open_device(update=update, context_length=1024)
    options: dict[str, Any] = {"max_new_tokens": 6, "temperature": 0}
    with pipe.session() as session:
        session.chat("one", **options)
        mark = session.checkpoint()
        left = session.chat("left", **options)
        session.rewind(to=mark)
        assert session.chat("left", **options).tokens == left.tokens
        with session.fork() as fork:
            fork.rewind(to=mark)
            right = fork.chat("right", **options)
        assert right.usage.cached_tokens
        turns = [*mark.messages, {"role": "user", "content": "right"}]
        assert right.tokens == pipe.generate(messages=turns, **options).tokens


def test_other_kinds_of_state_stay_on_the_host(open_tiny: Any, memory: SeparateMemory) -> None:
    pipe, package = open_tiny("recurrent", load={"backend": "emulated", "max_batch": 3, "prefill_chunk": 16})
    prompts = [package.vocabulary.encode(text) for text in TEXTS[:4]]
    assert together(pipe, prompts, max_new_tokens=9) == [package.answer(prompt, 9) for prompt in prompts]
    assert memory.used == 0


def test_rows_are_those_that_the_claim_pays_for(open_tiny: Any, memory: SeparateMemory) -> None:
    row = 256 * TOKEN_BYTES
    pipe, _ = open_tiny(load={"backend": "emulated", "max_batch": 16, "memory": 5 * row * 4 // 3 + 100})
    (found,) = pipe._assembly.pools.values()
    assert found.max_rows == 5
    assert memory.used == found.usage().resident_bytes == 5 * row


def test_a_claim_of_less_than_a_row_gives_a_short_one(open_tiny: Any, memory: SeparateMemory) -> None:
    pipe, package = open_tiny(load={"backend": "emulated", "memory": 64 * TOKEN_BYTES * 4 // 3 + 100})
    assert memory.used == 64 * TOKEN_BYTES
    prompt = package.vocabulary.encode("abc")
    result = pipe.generate(tokens=prompt, temperature=0, ignore_eos=True)
    assert result.usage.completion_tokens == 61
    assert list(result.tokens) == package.expected(prompt, 61)


def test_rows_are_those_that_the_device_has_memory_for(open_tiny: Any, memory: SeparateMemory) -> None:
    memory._limit = 4 * 256 * TOKEN_BYTES
    pipe, package = open_tiny(load={"backend": "emulated", "max_batch": 16})
    (found,) = pipe._assembly.pools.values()
    assert found.max_rows == 3  # a share of it is left to the graph
    prompts = [package.vocabulary.encode(text) for text in TEXTS]
    assert together(pipe, prompts, max_new_tokens=5) == [package.answer(prompt, 5) for prompt in prompts]


def test_a_device_without_memory_for_one_row_is_an_error(open_tiny: Any, memory: SeparateMemory) -> None:
    memory._limit = 100 * TOKEN_BYTES
    with pytest.raises(CapacityError, match="too little memory for one sequence of 256 tokens"):
        open_tiny(load={"backend": "emulated"})
    assert memory.used == 0


def test_memory_goes_with_the_pipeline(open_tiny: Any, memory: SeparateMemory) -> None:
    pipe, _ = open_tiny(load={"backend": "emulated"})
    pipe.generate("x", max_new_tokens=3)
    assert memory.used
    pipe.close()
    assert memory.used == 0

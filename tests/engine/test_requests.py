"""Life of requests: cancelling, lost consumers, timeouts, errors, closing, threads and asyncio."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import numpy as np
import pytest

from genai_pipeline.engine.lane import Lane
from genai_pipeline.errors import (
    EngineClosedError,
    EngineFailedError,
    GraphRunError,
    OptionError,
    QueueFullError,
    RequestError,
    RequestTimeoutError,
)


def endless(pipe: Any, **options: Any) -> Any:
    return pipe.stream("x", temperature=0, ignore_eos=True, **options)


def idle(pipe: Any) -> bool:
    """Whether nothing holds state; asked through the engine's own thread, after all it was told before."""
    pipe.generate("x", max_new_tokens=1)
    return all(
        pool.free_rows == pool.max_rows and pool.free_pages == pool.num_pages for pool in pipe._assembly.pools.values()
    )


def test_a_cancelled_request_says_so_and_frees_its_pages(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=4096)
    stream = endless(pipe)
    next(stream)
    stream.cancel()
    last = list(stream)[-1]
    assert last.finish_reason == "cancelled"
    assert last.usage.completion_tokens < 4000
    assert idle(pipe)


def test_closing_or_losing_the_stream_cancels(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=4096)
    with endless(pipe) as stream:
        next(stream)
    assert list(stream) == []
    stream = endless(pipe)
    next(stream)
    del stream
    gc.collect()
    assert idle(pipe)


def test_a_waiting_request_can_be_cancelled(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=4096)
    first, second = endless(pipe), endless(pipe)
    second.cancel()
    assert list(second)[-1].finish_reason == "cancelled"
    first.close()
    assert idle(pipe)


def test_a_timeout_covers_queue_and_run(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=4096)
    with pytest.raises(RequestTimeoutError):
        pipe.generate("x", temperature=0, ignore_eos=True, timeout=0.02)
    with endless(pipe), pytest.raises(RequestTimeoutError):
        pipe.generate("x", timeout=0.02)
    assert idle(pipe)


def test_in_a_stream_an_error_is_the_last_event(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=4096)
    last = list(endless(pipe, timeout=0.02))[-1]
    assert last.finish_reason == "error"
    assert isinstance(last.error, RequestTimeoutError)


def test_a_failed_graph_run_ends_its_request_alone(open_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, package = open_tiny("kv")
    run = Lane.run

    def failing(self: Lane, batch: Any) -> Any:
        if batch.sequences[0].tokens[0] == package.vocabulary.id("z"):
            raise GraphRunError("component 'decoder': no")
        return run(self, batch)

    monkeypatch.setattr(Lane, "run", failing)
    with pytest.raises(GraphRunError, match="decoder"):
        pipe.generate("z", raw=True)
    prompt = package.vocabulary.encode("a")
    assert list(pipe.generate("a", raw=True, temperature=0, max_new_tokens=5).tokens) == package.answer(prompt, 5)
    assert idle(pipe)


def test_a_defect_fails_every_waiter_instead_of_hanging(open_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, _ = open_tiny("kv")

    submitted = threading.Event()

    def broken(self: Lane, batch: Any) -> Any:
        submitted.wait()
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Lane, "run", broken)
    streams = [endless(pipe) for _ in range(3)]
    submitted.set()
    for stream in streams:
        last = list(stream)[-1]
        assert isinstance(last.error, EngineFailedError)
        assert isinstance(last.error.__cause__, ZeroDivisionError)
    with pytest.raises(EngineFailedError):
        pipe.generate("x")


def test_closing_ends_what_runs_and_what_waits(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=4096)
    streams = [endless(pipe) for _ in range(2)]
    next(streams[0])
    pipe.close()
    for stream in streams:
        assert isinstance(list(stream)[-1].error, EngineClosedError)
    with pytest.raises(EngineClosedError):
        pipe.generate("x")
    pipe.close()


def test_many_threads_get_their_own_tokens(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    texts = [chr(ord("a") + i) * (i + 1) for i in range(12)]
    results: dict[str, list[int]] = {}

    def ask(text: str) -> None:
        results[text] = list(pipe.generate(text, raw=True, temperature=0, max_new_tokens=7).tokens)

    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {text: package.answer(package.vocabulary.encode(text), 7) for text in texts}


def test_asyncio_streams_events_and_cancels(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", context_length=4096)

    async def main() -> list[int]:
        answers = [event.token async for event in pipe.astream("a", raw=True, temperature=0, max_new_tokens=5)]
        stream = pipe.astream("x", ignore_eos=True)
        await anext(stream)
        task = asyncio.create_task(anext_all(stream))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [token for token in answers if token is not None]

    async def anext_all(stream: Any) -> None:
        async for _ in stream:
            pass

    assert asyncio.run(main()) == package.answer(package.vocabulary.encode("a"), 5)
    assert idle(pipe)


def test_usage_and_timings_add_up(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv")
    result = pipe.generate("hello", max_new_tokens=8, temperature=0, ignore_eos=True)
    times = result.timings.to_dict()
    assert result.usage.completion_tokens == 8
    assert times["queued"] <= times["first_token"] <= times["total"]
    assert times["graph"] <= times["total"]
    assert np.isclose(times["queued"] + times["prefill"], times["first_token"])


def test_sampling_is_seeded_and_its_settings_can_be_seen(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", peak=1.0, generation={"defaults": {"temperature": 0.6, "top_k": 20}})
    assert (pipe.options().temperature, pipe.options().top_k) == (0.6, 20)
    assert pipe.options(temperature=1.0).temperature == 1.0
    assert pipe.options().sources == {"temperature": "package", "top_k": "package"}
    ask = {"prompt": "x", "max_new_tokens": 20, "ignore_eos": True}
    assert pipe.generate(**ask, seed=3).tokens == pipe.generate(**ask, seed=3).tokens
    assert len({pipe.generate(**ask).tokens for _ in range(4)}) > 1
    with pytest.raises(OptionError, match="repetition"):
        pipe.generate("x", repetition=1)


def test_overrides_bound_the_form_of_answers_too(open_tiny: Any) -> None:
    allowed = {"regex": ["a+", "b+"], "temperature": True, "max_new_tokens": True}
    pipe, _ = open_tiny("flat", generation={"overrides": allowed})
    assert set(pipe.generate("x", regex="a+", temperature=1.0, max_new_tokens=1).text) == {"a"}
    with pytest.raises(OptionError, match=r"allows regex .*, not 'c\+'"):
        pipe.generate("x", regex="c+")
    with pytest.raises(OptionError, match="does not let a request set choices"):
        pipe.generate("x", choices=["a"])


def test_a_full_queue_refuses_until_something_has_ended(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", context_length=4096, load={"max_batch": 2, "max_queue": 1})
    with endless(pipe), endless(pipe) as second, endless(pipe):
        with pytest.raises(QueueFullError, match="3 requests run or wait") as caught:
            pipe.stream("x")
        assert caught.value.retryable
        second.close()
        prompt = package.vocabulary.encode("a")
        while True:  # the cancelled one is out within a few steps
            try:
                pipe.stream(tokens=prompt, max_new_tokens=1).close()
                break
            except QueueFullError:
                continue
    assert pipe.stats()["requests"]["refused"] >= 1


def test_requests_are_read_and_submitted_off_the_event_loop(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    prompt = package.vocabulary.encode("abc")
    seen: list[str] = []
    read = pipe._reader.read

    def noting(*args: Any) -> Any:
        seen.append(threading.current_thread().name)
        return read(*args)

    pipe._reader.read = noting

    async def run() -> list[int]:
        with pytest.raises(OptionError):
            await pipe.aopen("x", temperature=-1)
        stream = await pipe.aopen(tokens=prompt, temperature=0, max_new_tokens=5)
        assert stream.prompt_tokens == len(prompt)
        return [event.token async for event in stream if event.token is not None]

    assert asyncio.run(run()) == package.answer(prompt, 5)
    assert threading.main_thread().name not in seen


def test_tokens_and_text_of_a_package(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    tokens = pipe.tokenize("abc", raw=True)
    assert tokens == tuple(package.vocabulary.encode("abc"))
    assert pipe.detokenize(tokens) == "abc"
    with pytest.raises(RequestError, match="outside the vocabulary"):
        pipe.detokenize([10**6])

"""Sessions give the answers of whole conversations, and compute only what is new."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import CheckpointError, RequestError
from genai_pipeline.kv.checkpoint import write_checkpoint
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.kv.saved import SavedShape
from genai_pipeline.testing import write_package

OPTIONS = {"temperature": 0, "max_new_tokens": 8}


def turns(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def plain(pipe: gp.Pipeline, messages: Any) -> tuple[int, ...]:
    return pipe.generate(messages=messages, **OPTIONS).tokens


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("update", ["in_place", "append", "scatter"])
def test_turns_are_those_of_the_whole_conversation(open_tiny: Any, update: str, prefix_cache: bool) -> None:
    pipe, _ = open_tiny("kv", update=update, context_length=1024, load={"prefix_cache": prefix_cache})
    with pipe.session() as session:
        cached = []
        for text in ("hello there", "how are you", "and so on"):
            result = session.chat(text, **OPTIONS)
            assert result.tokens == plain(pipe, session.messages[:-1])
            cached.append(result.usage.cached_tokens)
        assert len(session.messages) == 6
        assert cached[0] < cached[1] < cached[2]


def test_fork_and_rewind(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=1024)
    with pipe.session() as session:
        session.chat("one", **OPTIONS)
        mark = session.checkpoint()
        left = session.chat("left", **OPTIONS)
        with session.fork() as fork:
            assert fork.messages == session.messages
            fork.chat("further", **OPTIONS)
            assert len(fork.messages) == len(session.messages) + 2
        session.rewind(to=mark)
        assert session.checkpoint() == mark
        assert session.chat("left", **OPTIONS).tokens == left.tokens
        right = session.fork()
        right.rewind(to=mark)
        assert right.chat("right", **OPTIONS).tokens == plain(pipe, [*mark.messages, *turns("right")])
        right.close()


def test_a_stream_that_is_closed_leaves_the_answer_so_far(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=1024)
    with pipe.session() as session:
        events = session.stream("hello", temperature=0, ignore_eos=True)
        pieces = [next(events) for _ in range(3)]
        events.close()
        assert session.messages[-1] == {"role": "assistant", "content": "".join(event.text for event in pieces)}


def test_a_turn_that_fails_never_was(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=128)
    with pipe.session() as session:
        session.chat("hi", **OPTIONS)
        before = session.checkpoint()
        with pytest.raises(RequestError):
            session.chat("x" * 200, **OPTIONS)
        assert session.checkpoint() == before
        session.chat("again", **OPTIONS)


def test_kept_state_survives_other_traffic_and_goes_with_the_session(open_tiny: Any) -> None:
    page = 16 * 2 * 2 * 2 * 8 * 4
    pipe, package = open_tiny("kv", context_length=512, load={"memory": 4 * 64 * page})
    (part,) = pipe._assembly.parts.values()
    with pipe.session() as session:
        session.chat("remember this for a while", **OPTIONS)
        for i in range(40):
            pipe.generate(tokens=package.vocabulary.encode(chr(ord("a") + i % 26) * (100 + i)), **OPTIONS)
        assert part.store.usage().evictions > 0
        assert session.chat("still there", **OPTIONS).usage.cached_tokens >= 32
        assert part.store.usage().held_pages > 0
    assert part.store.usage().held_pages == 0


def test_saved_in_one_process_and_gone_on_with_in_another(tmp_path: Path) -> None:
    package = write_package(tmp_path / "package", "kv", context_length=1024)
    script = (
        "import sys, genai_pipeline as gp\n"
        "with gp.load(sys.argv[1]) as pipe, pipe.session() as session:\n"
        "    session.chat('a long way to go before we sleep', temperature=0, max_new_tokens=8)\n"
        "    session.save(sys.argv[2])\n"
    )
    saved = tmp_path / "session.safetensors"
    subprocess.run([sys.executable, "-c", script, package.path, saved], check=True, timeout=120)
    with gp.load(package.path) as pipe, pipe.session(str(saved)) as session:
        assert len(session.messages) == 2
        result = session.chat("and then", **OPTIONS)
        assert result.usage.cached_tokens >= 32
        assert result.tokens == plain(pipe, session.messages[:-1])


def test_files_of_other_packages_and_damaged_files_are_refused(open_tiny: Any, tmp_path: Path) -> None:
    pipe, _ = open_tiny("kv", context_length=1024)
    other, _ = open_tiny("kv", context_length=512)
    path = tmp_path / "saved"
    with pipe.session() as session:
        session.chat("hello", **OPTIONS)
        session.save(str(path))
    with pytest.raises(CheckpointError, match="digest"):
        other.session(str(path))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match="saved"):
        pipe.session(str(path))


@pytest.mark.parametrize(
    ("computed", "extra", "said"),
    [
        (17, {"messages": "[]"}, "whole pages of 16"),
        (16, {}, "no messages"),
        (16, {"messages": "[}"}, "no messages"),
        (16, {"messages": '{"role": "user"}'}, "no list of messages"),
        (16, {"messages": '["hello"]'}, "no list of messages"),
    ],
)
@pytest.mark.parametrize("kind", ["kv", "recurrent"])
def test_a_crafted_file_is_refused_and_harms_nobody(
    open_tiny: Any, tmp_path: Path, kind: str, computed: int, extra: dict[str, str], said: str
) -> None:
    pipe, package = open_tiny(kind, context_length=256)
    path = tmp_path / "saved"
    sessions = pipe._sessions
    components = sessions._keeper.components
    pool = KvPool(components, max_rows=1, capacity=64)
    row = pool.open()
    assert row is not None
    empty = SavedShape(components)
    growing = [np.zeros((computed, *layout.outer, *layout.inner), layout.dtype) for layout in empty.growing]
    _, whole = empty.split(pool.save(row, 0, 0))
    write_checkpoint(path, range(32), empty.join(growing, whole), sessions._identity, extra, num_computed=computed)
    pool.close()
    with pytest.raises(CheckpointError, match=said):
        pipe.session(str(path))
    assert pipe.generate(tokens=package.vocabulary.encode("alive"), **OPTIONS).tokens


def held_pages(pipe: gp.Pipeline) -> int:
    (part,) = pipe._assembly.parts.values()
    return part.store.usage().held_pages


def test_forks_and_sessions_that_come_back_are_within_the_limit(
    open_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genai_pipeline.engine.sessions.MAX_SESSIONS", 2)
    pipe, _ = open_tiny("kv", context_length=1024)
    first = pipe.session()
    first.chat("a first one that is long enough", **OPTIONS)
    forks = [first.fork() for _ in range(4)]
    assert [session._pinned is not None for session in (first, *forks)] == [False, False, False, True, True]
    first.chat("back", **OPTIONS)
    assert [session._pinned is not None for session in (first, *forks)] == [True, False, False, False, True]
    for session in (first, *forks):
        session.close()
    assert held_pages(pipe) == 0


def test_a_session_that_is_never_closed_holds_its_state_no_longer_than_itself(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=1024)
    lost = pipe.session()
    lost.chat("nobody will close this session", **OPTIONS)
    assert held_pages(pipe) > 0
    del lost
    gc.collect()
    with pipe.session() as session:
        session.chat("x", **OPTIONS)
    assert held_pages(pipe) == 0


def test_sessions_are_no_look_ups_of_the_prefix_cache(open_tiny: Any, tmp_path: Path) -> None:
    pipe, _ = open_tiny("kv", context_length=1024)
    with pipe.session() as session:
        session.chat("hello there, how are you", **OPTIONS)
        session.save(str(tmp_path / "saved"))
    with pipe.session(str(tmp_path / "saved")):
        prefix = pipe.stats()["prefix"]
    assert (prefix["hits"], prefix["misses"]) == (0, 1)


def test_turns_may_be_awaited(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv")
    ask = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
    with pipe.session() as plain, pipe.session() as awaited:
        wanted = [plain.chat("hello", **ask).tokens, plain.chat("again", **ask).tokens]

        async def run() -> list[tuple[int, ...]]:
            turns = []
            for text in ("hello", "again"):
                events = [event async for event in awaited.astream(text, **ask)]
                turns.append(tuple(event.token for event in events if event.token is not None))
            return turns

        assert asyncio.run(run()) == wanted
        assert awaited.messages == plain.messages
        assert awaited.tokens == plain.tokens


def test_an_awaited_turn_is_checked_when_it_is_opened_and_may_be_abandoned(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv")
    ask = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
    with pipe.session() as session:
        session.chat("hello", **ask)
        before = session.checkpoint()

        async def run() -> None:
            with pytest.raises(RequestError):
                await session.aopen("again", temperature=-1)
            turn = await session.aopen("again", **ask)
            assert turn.prompt_tokens > len(before.tokens)
            await anext(turn)
            await turn.abandon()
            assert session.checkpoint() == before
            turn = await session.aopen("again", **ask)
            await turn.aclose()

        asyncio.run(run())
        assert [message["role"] for message in session.messages] == ["user", "assistant"] * 2
        assert session.messages[-1]["content"] == ""

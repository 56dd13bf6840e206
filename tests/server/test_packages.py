"""Several packages in one server: loaded on demand, unloaded for room, never under a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.server import packages
from genai_pipeline.server.api_errors import ApiError
from genai_pipeline.server.config import ServerConfig
from genai_pipeline.server.packages import PackageHost

STATE = 8 << 20
ROOM_FOR_ONE = STATE + (4 << 20)  # beside the state, weights of tiny packages are small
ROOM_FOR_TWO = 2 * ROOM_FOR_ONE


@pytest.fixture
def host(tiny: Any) -> Callable[..., PackageHost]:
    """``host("a", "b", memory=...)``: tiny packages by these names."""

    def make(*names: str, **config: Any) -> PackageHost:
        paths = [tiny(name=name).path for name in names]
        return PackageHost(ServerConfig.of(paths, load={"memory": STATE}, **{"warm_up": False, **config}))

    return make


def states(host: PackageHost) -> dict[str, str]:
    return {figures["name"]: figures["state"] for figures in host.stats()}


def run(host: PackageHost, work: Callable[[PackageHost], Any]) -> None:
    async def main() -> None:
        try:
            await work(host)
        finally:
            await host.close()

    asyncio.run(main())


def test_a_package_is_loaded_when_it_is_first_asked_for_and_once(host: Any) -> None:
    async def work(host: PackageHost) -> None:
        assert states(host) == {"a": "unloaded", "b": "unloaded"}

        async def use() -> Any:
            async with host.use("b") as pipe:
                return pipe

        first, *others = await asyncio.gather(*(use() for _ in range(5)))
        assert all(pipe is first for pipe in others)
        assert states(host) == {"a": "unloaded", "b": "loaded"}
        assert [figures["loads"] for figures in host.stats()] == [0, 1]

    run(host("a", "b"), work)


def test_the_first_one_is_meant_where_none_is_named(host: Any) -> None:
    async def work(host: PackageHost) -> None:
        assert [host.resolve(name) for name in (None, "", "b")] == ["a", "a", "b"]
        with pytest.raises(ApiError) as caught:
            async with host.use("c"):
                pass
        assert caught.value.status == 404

    run(host("a", "b"), work)


def test_the_longest_unused_gives_way(host: Any) -> None:
    async def work(host: PackageHost) -> None:
        for name in ("a", "b", "a", "c"):
            async with host.use(name):
                pass
        assert states(host) == {"a": "loaded", "b": "unloaded", "c": "loaded"}
        async with host.use("b"):
            assert states(host) == {"a": "unloaded", "b": "loaded", "c": "loaded"}

    run(host("a", "b", "c", memory=ROOM_FOR_TWO), work)


def test_a_package_in_use_is_waited_for_and_nobody_new_comes_first(host: Any) -> None:
    async def work(host: PackageHost) -> None:
        order: list[str] = []

        async def use(name: str, until: asyncio.Event) -> None:
            async with host.use(name):
                order.append(name)
                await until.wait()

        first, later = asyncio.Event(), asyncio.Event()
        later.set()
        tasks = [asyncio.create_task(use("a", first))]
        while "a" not in order:
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(use("b", later)))
        while states(host)["a"] != "leaving":
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(use("a", later)))
        await asyncio.sleep(0)
        assert order == ["a"]
        first.set()
        await asyncio.gather(*tasks)
        assert order == ["a", "b", "a"]

    run(host("a", "b", memory=ROOM_FOR_ONE), work)


def test_who_waits_too_long_for_room_is_told_to_come_back(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "BUSY_SECONDS", 0.01)

    async def work(host: PackageHost) -> None:
        async with host.use("a"):
            with pytest.raises(ApiError) as caught:
                async with host.use("b"):
                    pass
            assert (caught.value.status, caught.value.code) == (503, "models_busy")
            assert caught.value.retry_after
            async with host.use("a"):
                assert states(host) == {"a": "loaded", "b": "unloaded"}

    run(host("a", "b", memory=ROOM_FOR_ONE), work)


def test_a_package_larger_than_all_room_is_a_503(host: Any) -> None:
    async def work(host: PackageHost) -> None:
        with pytest.raises(ApiError) as caught:
            await host.load("a")
        assert (caught.value.status, caught.value.code) == (503, "model_too_large")

    run(host("a", memory=STATE - 1), work)


def test_who_gives_up_waiting_leaves_nothing_behind(host: Any) -> None:
    async def work(host: PackageHost) -> None:
        async def use() -> None:
            async with host.use("a"):
                raise AssertionError

        task = asyncio.create_task(use())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await host.load("a")
        await host.unload("a")
        assert states(host) == {"a": "unloaded"}

    run(host("a"), work)


def test_a_package_that_cannot_be_loaded_is_a_503_and_the_others_go_on(live: Any, tiny: Any, http: Any) -> None:
    good, bad = tiny(name="good"), tiny(name="bad")
    url = live(good, bad)
    for graph in bad.path.glob("*.onnx"):
        graph.write_bytes(b"\0")
    body = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 2}
    refused = http.post(f"{url}/v1/chat/completions", json={**body, "model": "bad"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_unavailable")
    assert str(bad.path) not in refused.text
    assert ".onnx" not in refused.text
    assert http.post(f"{url}/v1/chat/completions", json=body).json()["model"] == "good"


def test_administrators_load_and_unload(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(name="a"), tiny(name="b"))
    assert http.post(f"{url}/admin/models/b/load").json() == {"name": "b", "loaded": True}
    assert http.post(f"{url}/admin/models/a/unload").json() == {"name": "a", "loaded": False}
    shown = http.get(f"{url}/admin/status").json()
    assert {model["name"]: model["state"] for model in shown["models"]} == {"a": "unloaded", "b": "loaded"}
    assert http.post(f"{url}/admin/models/c/load").status_code == 404
    body = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 2}
    assert http.post(f"{url}/v1/chat/completions", json=body).json()["model"] == "a"


def test_models_that_take_turns_in_little_memory_answer_as_ever(live: Any, tiny: Any, http: Any) -> None:
    made = {name: tiny(name=name) for name in ("a", "b", "c")}
    url = live(*made.values(), load={"memory": STATE}, memory=ROOM_FOR_ONE)
    for name in ("a", "b", "c", "a", "c"):
        body = {"model": name, "messages": [{"role": "user", "content": name}], "max_tokens": 5, "temperature": 0}
        answer = http.post(f"{url}/v1/chat/completions", json=body).json()
        prompt = made[name].vocabulary.chat_prompt(("user", name))
        assert answer["choices"][0]["message"]["content"] == made[name].answer_text(prompt, 5)


def test_two_packages_of_one_name_are_refused_and_may_be_renamed(tiny: Any) -> None:
    first, second = tiny(name="same").path, tiny(name="same").path
    with pytest.raises(OptionError) as caught:
        ServerConfig.of([first, second])
    assert "NAME=PACKAGE" in caught.value.hint
    assert [served.name for served in ServerConfig.of([first, f"other={second}"]).packages] == ["same", "other"]


def test_a_package_that_is_wrong_keeps_the_server_from_starting(live: Any, tiny: Any) -> None:
    from genai_pipeline.errors import PackageError

    bad = tiny()
    for graph in bad.path.glob("*.onnx"):
        graph.write_bytes(b"\0")
    with pytest.raises(PackageError):
        live(bad)


def test_a_package_that_was_to_leave_and_stayed_is_not_loaded_again(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "BUSY_SECONDS", 0.2)

    async def work(host: PackageHost) -> None:
        async def other() -> None:
            with pytest.raises(ApiError, match="other models are in use"):
                await host.load("b")

        async with host.use("a") as pipe:
            leaving = asyncio.create_task(other())
            while states(host)["a"] != "leaving":
                await asyncio.sleep(0)
            async with host.use("a") as again:  # waits until it is known that the package stays
                assert again is pipe
            await leaving
        assert [figures["loads"] for figures in host.stats() if figures["name"] == "a"] == [1]

    run(host("a", "b", memory=ROOM_FOR_ONE), work)


def test_a_package_that_finds_no_memory_is_not_the_fault_of_who_asks(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(), preload="none", load={"memory": 64})
    answer = http.post(f"{url}/v1/completions", json={"prompt": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_too_large")
    assert "bytes" not in answer.json()["error"]["message"]

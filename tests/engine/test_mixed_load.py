"""A thousand mixed requests with cancellations leave nothing behind."""

from __future__ import annotations

import random
import threading
from typing import Any

import psutil
import pytest

CLIENTS = 8
PAGE_BYTES = 16 * 2 * 2 * 2 * 8 * 4


def client(pipe: Any, package: Any, rng: random.Random, count: int, wrong: list[str]) -> None:
    for _ in range(count):
        prompt = package.vocabulary.encode(rng.choice("abcdef") * rng.randint(1, 50))
        new = rng.randint(1, 30)
        stream = pipe.stream(
            tokens=prompt,
            max_new_tokens=new,
            temperature=0,
            ignore_eos=True,
            priority=rng.choice(("low", "normal", "high")),
        )
        stop = rng.randint(1, new) if rng.random() < 0.3 else new + 1
        got = []
        for event in stream:
            got += [] if event.token is None else [event.token]
            if len(got) == stop:
                stream.close()
                break
        if got != package.expected(prompt, new)[: len(got)]:
            wrong.append(f"{prompt}: {got}")


def load(pipe: Any, package: Any, count: int, seed: str) -> list[str]:
    wrong: list[str] = []
    threads = [
        threading.Thread(target=client, args=(pipe, package, random.Random(f"{seed}{i}"), count // CLIENTS, wrong))
        for i in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


@pytest.mark.parametrize("update", ["in_place", "append"])
def test_the_pool_is_empty_and_memory_flat_after_a_thousand_requests(open_tiny: Any, update: str) -> None:
    pipe, package = open_tiny("kv", update=update, load={"max_batch": 6, "memory": 40 * PAGE_BYTES})
    assert load(pipe, package, 400, "warm") == []
    resident = psutil.Process().memory_info().rss
    assert load(pipe, package, 600, "on") == []
    assert psutil.Process().memory_info().rss - resident < 24 * 2**20
    pipe.generate("x", max_new_tokens=1)
    (part,) = pipe._assembly.parts.values()
    assert part.pool.free_rows == part.pool.max_rows
    assert part.pool.free_pages == part.pool.num_pages == pipe._assembly.engine._scheduler.free_pages("generate")
    usage = part.store.usage()
    assert usage.held_pages == usage.swapped == 0
    assert usage.host_bytes <= usage.budget_bytes

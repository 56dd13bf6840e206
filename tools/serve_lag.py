"""How long the event loop of a server is blocked under load: streams, large bodies, metrics, all at once.

Usage: python tools/serve_lag.py [PACKAGE] [--clients 64] [--seconds 20]; prints the worst delay that the server itself
saw, and exits with 1 when it is above 50 ms without the time in which no processor was to be had.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx

ALLOWED = 0.05
FIGURES = re.compile(r"^genai_http_loop_(lag|blocked)_seconds (\S+)$", re.MULTILINE)
SENTENCE = "The quick brown fox jumps over the lazy dog, and the dog does not mind. "

Figures = dict[str, float]
Work = Callable[[httpx.AsyncClient], Awaitable[None]]


async def chat(client: httpx.AsyncClient) -> None:
    """A streamed answer of a hundred tokens with log probabilities."""
    body = {
        "messages": [{"role": "user", "content": SENTENCE * 4}],
        "max_tokens": 100,
        "stream": True,
        "logprobs": True,
        "top_logprobs": 5,
    }
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for _ in answer.aiter_bytes():
            pass


async def large_body(client: httpx.AsyncClient) -> None:
    """Bodies near the limits: a long text, and as many values as may be; neither fits the context."""
    text = {"messages": [{"role": "user", "content": SENTENCE * 14_000}]}
    await client.post("/v1/chat/completions", json=text)
    many = json.dumps({"prompt": [1] * 90_000})
    await client.post("/v1/completions", content=many, headers={"content-type": "application/json"})


async def tokens(client: httpx.AsyncClient) -> None:
    """A long text to tokens, and these back."""
    made = await client.post("/tokenize", json={"prompt": SENTENCE * 4000})
    if made.status_code == 200:
        await client.post("/detokenize", json={"tokens": made.json()["tokens"]})


async def main(package: str, clients: int, seconds: float) -> int:
    """Run the load and print what the server saw."""
    seen: list[Figures] = []
    async with served(package) as address, httpx.AsyncClient(base_url=address, timeout=300) as client:
        await asyncio.sleep(15)  # until the figures have forgotten the start
        end = time.monotonic() + seconds
        jobs = [repeat(chat, client, end) for _ in range(clients)]
        jobs += [repeat(work, client, end) for work in (large_body, tokens)]
        watching = asyncio.create_task(watch(client, seen))
        done = await asyncio.gather(*jobs)
        watching.cancel()
    late, blocked = (max(figures[name] for figures in seen) * 1000 for name in ("lag", "blocked"))
    print(f"{sum(done)} requests; the event loop was {late:.0f} ms late, {blocked:.0f} ms where it had a processor")
    return int(blocked > ALLOWED * 1000)


async def repeat(work: Work, client: httpx.AsyncClient, end: float) -> int:
    """Do it again and again until the time is over; gives how often."""
    count = 0
    while time.monotonic() < end:
        await work(client)
        count += 1
    return count


async def watch(client: httpx.AsyncClient, seen: list[Figures]) -> None:
    """Note the server's own figures each second."""
    while True:
        text = (await client.get("/metrics")).text
        seen.append({name: float(value) for name, value in FIGURES.findall(text)})
        await asyncio.sleep(1)


@asynccontextmanager
async def served(package: str) -> AsyncIterator[str]:
    """The address of a server in a process of its own."""
    command = [sys.executable, "-m", "genai_pipeline", "-q", "serve", package, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("listening on "):
                yield line.removeprefix("listening on ").strip()
                break
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", nargs="?", default="smollm2-135m")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    raise SystemExit(asyncio.run(main(given.package, given.clients, given.seconds)))

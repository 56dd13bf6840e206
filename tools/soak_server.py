"""A long random load on the HTTP server: disconnects, malformed bodies, slow readers, huge inputs, schema bombs.

    python tools/soak_server.py [--minutes 15] [--seed 1]

Serves two closed-form packages in a process of its own and drives them with twelve clients, which switch between them.
Ends with a report, and with exit code 1 when a status of 500 or above came that is not a 503 by design, an answer was
wrong, memory grew, or anything was left over at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from genai_pipeline.testing import TinyPackage, write_package

CLIENTS = 12
CLOSED = "connection closed"
MOST_CLOSED = 0.002  # of all acts
MEMORY_GROWTH = 1.25  # of resident memory, from the third minute on
READY = re.compile(r"listening on (http://\S+)")
Act = Callable[["Client"], Awaitable[str]]


class Client:
    """One client with its own random numbers."""

    def __init__(self, http: httpx.AsyncClient, packages: dict[str, TinyPackage], seed: int) -> None:
        self.http = http
        self.packages = packages
        self.random = random.Random(seed)

    def body(self, **more: Any) -> tuple[dict[str, Any], TinyPackage, list[int]]:
        """A greedy completion of random tokens, with the package and the prompt that say what is right."""
        name = self.random.choice(sorted(self.packages))
        package = self.packages[name]
        prompt = [self.random.randrange(8, 40) for _ in range(self.random.randrange(1, 60))]
        body = {"model": name, "prompt": prompt, "max_tokens": self.random.randrange(1, 60), "temperature": 0}
        return {**body, "ignore_eos": True, **more}, package, prompt


async def complete(client: Client) -> str:
    """A whole answer, which has to be right."""
    body, package, prompt = client.body()
    response = await client.http.post("/v1/completions", json=body)
    if response.status_code in (429, 503):
        return str(response.status_code)
    assert response.status_code == 200, response.text
    text = response.json()["choices"][0]["text"]
    assert text == package.vocabulary.decode(package.expected(prompt, body["max_tokens"])), "a wrong answer"
    return "right"


async def disconnect(client: Client) -> str:
    """A stream that is left in the midst."""
    body, _, _ = client.body(stream=True)
    body["max_tokens"] = 150
    async with client.http.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            return await accepted(response)
        left = client.random.randrange(1, 30)
        async for _ in response.aiter_bytes(64):
            left -= 1
            if left == 0:
                return "left"
    return "ended"


async def read_slowly(client: Client) -> str:
    """A stream that is read with pauses."""
    body, _, _ = client.body(stream=True)
    async with client.http.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            return await accepted(response)
        async for _ in response.aiter_bytes(256):
            await asyncio.sleep(client.random.random() / 20)
    return "slow"


async def malformed(client: Client) -> str:
    """Bodies that are none."""
    path = client.random.choice(["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"])
    bodies: list[bytes] = [
        b"", b"{", b"[]", b"\xff\xfe{}", b'{"messages": 3}', b'{"prompt": {"a": []}}', b"[" * 5000,
        json.dumps({"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}).encode(),
        json.dumps({"prompt": "x", "max_tokens": -1}).encode(), json.dumps({"prompt": [10**9], "n": 10**6}).encode(),
    ]  # fmt: skip
    body = client.random.choice(bodies)
    response = await client.http.post(path, content=body, headers={"content-type": "application/json"})
    assert 400 <= response.status_code < 500 or response.status_code == 503, (response.status_code, body[:60])
    return "refused"


async def huge(client: Client) -> str:
    """Inputs beyond every limit."""
    size = client.random.choice([5_000, 200_000, 40_000_000])
    response = await client.http.post("/v1/completions", json={"prompt": "ab " * (size // 3), "max_tokens": 5})
    assert response.status_code in (400, 413, 429, 503), response.status_code
    return "refused"


async def schema_bomb(client: Client) -> str:
    """Schemas and patterns made to hurt."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(client.random.choice([60, 400])):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"], "additionalProperties": False}
    wide = {"anyOf": [{"type": "string", "pattern": f"^({'a?' * 30}){{{i}}}$"} for i in range(1, 60)]}
    refers = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    schema = client.random.choice([deep, wide, refers, {"enum": ["x" * 50] * 5000}])
    form = {"type": "json_schema", "json_schema": {"name": "bomb", "schema": schema}}
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 20, "response_format": form}
    response = await client.http.post("/v1/chat/completions", json=body)
    return await accepted(response)


async def chat(client: Client) -> str:
    """A sampled chat with several choices."""
    body = {
        "model": client.random.choice(sorted(client.packages)),
        "messages": [{"role": "user", "content": "abc " * client.random.randrange(1, 12)}],
        "max_tokens": 30, "n": client.random.choice([1, 1, 3]), "seed": client.random.randrange(9),
        "stop": ["d"], "logprobs": client.random.random() < 0.3,
    }  # fmt: skip
    return await accepted(await client.http.post("/v1/chat/completions", json=body))


async def accepted(response: httpx.Response) -> str:
    """The status, which may be anything below 500, or 503."""
    assert response.status_code < 500 or response.status_code == 503, (response.status_code, await response.aread())
    return str(response.status_code)


ACTS: list[tuple[Act, int]] = [
    (complete, 40), (chat, 20), (disconnect, 15), (read_slowly, 4), (malformed, 12), (huge, 3), (schema_bomb, 6),
]  # fmt: skip


async def drive(client: Client, until: float, outcomes: Counter[str], faults: list[str]) -> None:
    """Act at random until the time is over."""
    acts, weights = zip(*ACTS, strict=True)
    while time.monotonic() < until and len(faults) < 20:
        (act,) = client.random.choices(acts, weights)
        try:
            outcomes[f"{act.__name__}: {await act(client)}"] += 1
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            outcomes[CLOSED] += 1  # by a server that reads no more of a huge body, or at the end of a kept connection
        except (AssertionError, httpx.HTTPError) as error:
            faults.append(f"{act.__name__}: {type(error).__name__} {str(error)[:300]}")


async def soak(url: str, packages: dict[str, TinyPackage], server: psutil.Process, given: argparse.Namespace) -> int:
    """Run all clients, watch memory, and report."""
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    resident: list[int] = []
    begin, until = time.monotonic(), time.monotonic() + 60 * given.minutes
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=httpx.Limits(max_connections=None)) as http:
        clients = [Client(http, packages, given.seed * 1000 + i) for i in range(CLIENTS)]
        tasks = [asyncio.create_task(drive(client, until, outcomes, faults)) for client in clients]
        while any(not task.done() for task in tasks):
            await asyncio.sleep(5)
            resident.append(server.memory_info().rss)
            if len(resident) % 6 == 0:
                print(f"{until - time.monotonic():6.0f} s left: {outcomes.total()} acts, {len(faults)} faults, "
                      f"{resident[-1] >> 20} MiB", flush=True)  # fmt: skip
        await asyncio.gather(*tasks)
        await asyncio.sleep(3)
        metrics = (await http.get("/metrics")).text
    if outcomes[CLOSED] > MOST_CLOSED * outcomes.total():
        faults.append(f"{outcomes[CLOSED]} connections were closed without an answer")
    settled = resident[min(len(resident) - 1, 36) : -1] or resident
    if settled[-1] > MEMORY_GROWTH * settled[0]:
        faults.append(f"memory grew from {settled[0] >> 20} to {settled[-1] >> 20} MiB")
    for name in ("running", "queue"):
        left = [line for line in metrics.splitlines() if re.match(rf"genai_{name}(\{{.*\}})? ", line)]
        faults += [f"left over: {line}" for line in left if not line.endswith(" 0.0")]
        if not left:
            faults.append(f"no metric genai_{name}")
    print(
        f"{time.monotonic() - begin:.0f} s, resident {settled[0] >> 20} MiB at first, {settled[-1] >> 20} MiB at last"
    )
    print("\n".join(f"  {name}: {count}" for name, count in sorted(outcomes.items())))
    print("\n".join(faults) or "no faults")
    return 1 if faults else 0


def main() -> None:
    """Serve, soak, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        packages = {name: write_package(Path(folder) / name, "kv", update=name) for name in ("in_place", "append")}
        served = [f"{name}={package.path}" for name, package in packages.items()]
        command = [sys.executable, "-m", "genai_pipeline", "serve", *served]
        process = subprocess.Popen([*command, "--port", "0", "--max-queue", "64"], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        url = next(found[1] for line in process.stderr if (found := READY.search(line)))
        threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True).start()
        try:
            code = asyncio.run(soak(url, packages, psutil.Process(process.pid), given))
        finally:
            process.terminate()
            process.wait()
    sys.exit(code)


if __name__ == "__main__":
    main()

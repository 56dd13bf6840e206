"""The HTTP server under load: streaming clients, and the engine alone under the same requests.

    python tools/bench_server.py PACKAGE [--clients 64] [--tokens 64] [--rounds 3]

Server, clients and engine each have a process of their own, and server and engine take turns. The processor time of the
clients is printed and set off: a machine that runs them too has that much less for the server. Prints tokens/s against
the engine's, time to first token, the largest gap within a stream, and how late the server's event loop ever was.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import httpx

from genai_pipeline.cli.benching.turns import Child, answer

TOPICS = (
    "the sea|a lighthouse|old bridges|bread|the moon|a violin|winter|paper boats|the desert|bees|a train|glass|"
    "the harbour|tea|mountains|a clock"
)
READY = re.compile(r"listening on (http://\S+)")
OPTIONS: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


def prompts(count: int) -> list[str]:
    """Different questions of about the same length."""
    topics = TOPICS.split("|")
    return [f"Tell me something about {topics[i % len(topics)]}, number {i}." for i in range(count)]


class Server:
    """`genai-pipeline serve` on a free port."""

    def __init__(self, package: str) -> None:
        command = [sys.executable, "-m", "genai_pipeline", "serve", package, "--port", "0", "--no-prefix-cache"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            found = READY.search(line)
            if found:
                self.url = found[1]
                break
        else:
            raise SystemExit("the server did not start")
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        assert self._process.stderr is not None
        for _ in self._process.stderr:
            pass

    def lag(self) -> float | None:
        """Seconds that the event loop was late at most in the last seconds."""
        found = re.search(r"^\S*loop_lag_seconds(?:\{[^}]*\})? (\S+)", httpx.get(f"{self.url}/metrics").text, re.M)
        return float(found[1]) if found else None

    def close(self) -> None:
        """Drain and end."""
        self._process.terminate()
        self._process.wait()


async def client(http: httpx.AsyncClient, prompt: str, tokens: int) -> list[float]:
    """The moments of a stream's pieces."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "stream": True, **OPTIONS}
    moments: list[float] = []
    async with http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                choice = json.loads(line[6:])["choices"][0]
                if choice["delta"].get("content"):
                    moments.append(time.perf_counter())
    return moments


async def load(url: str, task: dict[str, Any]) -> dict[str, Any]:
    """All clients at once: rates and times, and the processor time this took here."""
    begin, cpu = time.perf_counter(), time.process_time()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=600) as http:
        streams = await asyncio.gather(*(client(http, prompt, task["tokens"]) for prompt in task["prompts"]))
    wall = time.perf_counter() - begin
    gaps = [after - before for moments in streams for before, after in itertools.pairwise(moments)]
    return {
        "rate": len(streams) * task["tokens"] / wall,
        "first": median(moments[0] - begin for moments in streams),
        "gap": max(gaps),
        "cpu": (time.process_time() - cpu) / wall,
    }


def engine(package: str) -> Any:
    """Answers with the engine's own tokens/s under the same requests, and the time of a batch-8 prefill."""
    import genai_pipeline as gp

    pipe = gp.load(package, prefix_cache=False)

    def run(task: dict[str, Any]) -> dict[str, float]:
        begin = time.perf_counter()
        streams = [pipe.stream(prompt, max_new_tokens=task["tokens"], **OPTIONS) for prompt in task["prompts"]]
        firsts = []
        for stream in streams:
            next(stream)
            firsts.append(time.perf_counter() - begin)
        count = len(streams) + sum(event.token is not None for stream in streams for event in stream)
        return {"rate": count / (time.perf_counter() - begin), "prefill": firsts[7] if len(firsts) > 7 else firsts[-1]}

    return run


def shown(what: str, ratios: Sequence[float], wanted: str) -> None:
    """One line of the report."""
    print(
        f"{what:58} {median(ratios):7.3f}   wanted {wanted}   (of {' '.join(f'{r:.3f}' for r in ratios)})", flush=True
    )


def main() -> None:
    """Run rounds and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", choices=["engine"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        answer(engine(given.package))
        return
    server, own = Server(given.package), Child("engine", [__file__, given.package, "--serve", "engine"])
    cores = len(os.sched_getaffinity(0))
    rates, firsts, lags, gaps, shares = [], [], [], [], []
    try:
        for task in ({"prompts": prompts(2), "tokens": 4},):  # warm both
            asyncio.run(load(server.url, task))
            own.ask(task)
        for _ in range(given.rounds):
            many = {"prompts": prompts(given.clients), "tokens": given.tokens}
            ours, alone = asyncio.run(load(server.url, many)), own.ask(many)
            share = ours["cpu"] / cores
            rates.append(ours["rate"] / (1 - share) / alone["rate"])
            shares.append(share)
            gaps.append(ours["gap"])
            lags.append(server.lag() or 0.0)
            few = {"prompts": prompts(8), "tokens": 8}
            firsts.append(asyncio.run(load(server.url, few))["first"] / own.ask(few)["prefill"])
    finally:
        server.close()
        own.close()
    print(f"{given.clients} clients of {given.tokens} tokens; the clients took {median(shares):.1%} of {cores} cores")
    shown("tokens/s over the engine's own, the clients' share set off", rates, ">= 0.9")
    shown("8 clients: median first token over a batch-8 prefill", firsts, "<= 2")
    shown("largest gap within a stream, seconds", gaps, "no stall")
    shown("event loop late by at most, seconds", lags, "<= 0.05")


if __name__ == "__main__":
    main()

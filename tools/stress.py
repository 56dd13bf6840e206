"""A long random load on a closed-form package: arrivals, cancels, priorities, a tiny pool, injected failures.

    python tools/stress.py [--minutes 10] [--update in_place|append|scatter] [--seed 1]

Every request's tokens are compared with the arithmetic twin, which knows what the request would get alone. Ends with a
report, and with exit code 1 when anything hung, leaked or differed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

import genai_pipeline as gp
from genai_pipeline.engine.lane import Lane
from genai_pipeline.errors import CapacityError, GraphRunError
from genai_pipeline.testing import TinyPackage, write_package

CLIENTS = 12
PAGES = 40  # for 12 clients that want up to 16 pages each
PAGE_BYTES = 16 * 2 * 2 * 2 * 8 * 4
HANG_SECONDS = 60.0
POISON = "z"  # a prompt that starts with it fails in mid-answer


@dataclass
class Report:
    """What happened; one lock for all clients."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    tokens: int = 0
    cached: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: str, tokens: int = 0, cached: int = 0) -> None:
        """Count one request."""
        with self.lock:
            self.outcomes[outcome] += 1
            self.tokens += tokens
            self.cached += cached

    def fault(self, text: str) -> None:
        """Note something that must not happen."""
        with self.lock:
            self.faults.append(text)


@contextmanager
def injected_failures(package: TinyPackage) -> Iterator[None]:
    """Graph runs fail as long as a poisoned row that has three tokens takes part."""
    run, poison = Lane.run, package.vocabulary.id(POISON)

    def failing(self: Lane, batch: Any) -> Any:
        if any(s.tokens[0] == poison and s.num_generated >= 3 for s in batch.sequences):
            raise GraphRunError("injected")
        return run(self, batch)

    Lane.run = failing  # type: ignore[method-assign]
    try:
        yield
    finally:
        Lane.run = run  # type: ignore[method-assign]


def client(pipe: gp.Pipeline, package: TinyPackage, rng: random.Random, end: float, report: Report) -> None:
    """One request after another until the time is up."""
    heads = ["", "shared prefix of some length ", "another one, which is longer than the first by far "]
    while time.monotonic() < end:
        text = rng.choice(heads) + rng.choice("abcdefg") * rng.randint(1, 60)
        if rng.random() < 0.05:
            text = POISON + text
        prompt = package.vocabulary.encode(text)
        count = rng.randint(1, 250 - len(prompt))
        request(pipe, package, prompt, count, rng, report)
        if rng.random() < 0.3:
            time.sleep(rng.random() * 0.05)


def request(
    pipe: gp.Pipeline, package: TinyPackage, prompt: list[int], count: int, rng: random.Random, report: Report
) -> None:
    """One request, perhaps cancelled on the way, compared with the twin."""
    cancel_after = rng.randint(1, count) if rng.random() < 0.25 else None
    got: list[int] = []
    try:
        stream = pipe.stream(
            tokens=prompt,
            max_new_tokens=count,
            temperature=0,
            ignore_eos=True,
            priority=rng.choice(("low", "normal", "high")),
        )
    except CapacityError:
        report.add("refused")
        return
    last = None
    for event in stream:
        last = event
        got += [] if event.token is None else [event.token]
        if cancel_after is not None and len(got) == cancel_after:
            stream.cancel()
            cancel_after = None
    assert last is not None
    outcome = last.finish_reason or "none"
    if got != package.expected(prompt, count)[: len(got)] or (outcome == "length" and len(got) != count):
        report.fault(f"tokens differ: prompt {prompt}, {len(got)} of {count} tokens, {outcome}")
    if (outcome == "error") != (prompt[0] == package.vocabulary.id(POISON) and len(got) == 3 and outcome == "error"):
        report.fault(f"unexpected error: {last.error!r}")
    report.add(outcome, len(got), last.usage.cached_tokens if last.usage else 0)


def check_idle(pipe: gp.Pipeline, report: Report) -> None:
    """Nothing may be held when nobody runs."""
    pipe.generate("x", max_new_tokens=1)
    for loop, pool in pipe._assembly.pools.items():
        held = pool.num_pages - pool.free_pages
        counted = pool.num_pages - pipe._assembly.engine._scheduler.free_pages(loop)
        if held or counted or pool.free_rows != pool.max_rows:
            report.fault(f"left over in {loop}: {held} pages, {counted} counted, {pool.free_rows} rows free")


def stress(minutes: float, update: str, seed: int) -> Report:
    """The whole run."""
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        package = write_package(folder, "kv", update=update, context_length=256)
        memory = PAGES * PAGE_BYTES * 4 // 3
        with injected_failures(package), gp.load(package.path, max_batch=8, memory=memory) as pipe:
            end = time.monotonic() + 60 * minutes
            rngs = [random.Random(f"{seed}/{index}") for index in range(CLIENTS)]
            threads = [
                threading.Thread(target=client, args=(pipe, package, rng, end, report), daemon=True) for rng in rngs
            ]
            for thread in threads:
                thread.start()
            resident = watch(end, report)
            for thread in threads:
                thread.join(HANG_SECONDS)
            hung = sum(thread.is_alive() for thread in threads)
            if hung:
                report.fault(f"{hung} clients hung")
            else:
                check_idle(pipe, report)
            if resident[-1] > 1.1 * resident[len(resident) // 3] + 2**24:
                report.fault(f"resident memory grew: {[f'{size / 2**20:.0f}' for size in resident]} MiB")
            print(f"resident: {resident[0] / 2**20:.0f} MiB at first, {resident[-1] / 2**20:.0f} MiB at last")
            print(f"store: {next(iter(pipe._assembly.parts.values())).store.usage()}")
    return report


def watch(end: float, report: Report) -> list[int]:
    """Resident memory over time; says now and then how far it is."""
    process, sizes = psutil.Process(), []
    pause = max(0.5, (end - time.monotonic()) / 20)
    while time.monotonic() < end:
        time.sleep(min(pause, max(0.0, end - time.monotonic())))
        sizes.append(process.memory_info().rss)
        print(
            f"{max(0, end - time.monotonic()):5.0f} s left: {dict(report.outcomes)}, {len(report.faults)} faults",
            flush=True,
        )
    return sizes


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--update", choices=("in_place", "append", "scatter"), default="in_place")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    report = stress(arguments.minutes, arguments.update, arguments.seed)
    print(f"requests by outcome: {dict(report.outcomes)}; {report.tokens} tokens, {report.cached} from the cache")
    for fault in report.faults[:20]:
        print(f"FAULT: {fault}")
    raise SystemExit(1 if report.faults else 0)


if __name__ == "__main__":
    main()

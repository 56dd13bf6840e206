"""Batching at its limits: the engine, the peer's continuous-batching engine, and bare loops over the same graph.

    python tools/bench_batching.py PACKAGE_FOLDER [--rounds 3] [--only batch,prefix,long]

Each contestant lives in a process of its own and they take turns, so that a ratio compares neighbours in time. Prints
the median of every ratio and what it should be for a float32 package. Peer: onnxruntime-genai (extra ``bench``).
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import genai_pipeline as gp
from genai_pipeline.checking import check_package
from genai_pipeline.cli.benching.load import Job, Schedule
from genai_pipeline.cli.benching.measure import Record
from genai_pipeline.cli.benching.ours import OwnContestant
from genai_pipeline.cli.benching.turns import Child, answer

ROWS, TOKENS = 16, 96
_QUESTIONS = (
    "Why is the sky blue?|Name three rivers in Europe.|What is a lighthouse for?|How do bees make honey?|"
    "Tell me about the moon.|What does a compass show?|Why do leaves turn red?|Who invented the telephone?|"
    "How is paper made today?|What is the tallest tree?|Where do penguins live?|Why does bread rise?|"
    "How far away is the sun?|What is an island?|How do clocks keep time?|What makes thunder loud?"
)


def prompts(package: Path) -> list[list[int]]:
    """Chat prompts of about 40 tokens, as the package's own template and tokenizer make them."""
    from genai_pipeline.preprocess.prompts import PromptReader

    checked = check_package(package)
    assert checked.spec is not None
    reader = PromptReader(checked.spec, checked.tokenizers)
    return [list(reader.prompt(question)["prompt.tokens"]) for question in _QUESTIONS.split("|")]


def summary(records: Sequence[Record]) -> dict[str, float]:
    """Tokens/s with prefill, median time to first token, and tokens/s while all rows decode."""
    assert all(record.error is None for record in records), records
    end = max(record.tokens[-1] for record in records)
    begin, all_end = max(r.tokens[0] for r in records), min(r.tokens[-1] for r in records)
    decoded = sum(begin < moment <= all_end for record in records for moment in record.tokens)
    return {
        "rate": sum(len(record.tokens) for record in records) / end,
        "first": median(record.tokens[0] - record.due for record in records),
        "decode": decoded / (all_end - begin) if all_end > begin else 0.0,
    }


class Own:
    """The engine."""

    def __init__(self, package: Path, *, prefix_cache: bool) -> None:
        self.pipe = gp.load(package, max_batch=ROWS, prefix_cache=prefix_cache)
        self._contestant = OwnContestant(self.pipe)

    def batch(self, task: dict[str, Any]) -> dict[str, Any]:
        """As many clients as prompts, one request each; also the share of time outside graph runs."""
        jobs = tuple(Job(tuple(tokens), TOKENS) for tokens in task["prompts"])
        before, start = self._graph_seconds(), time.perf_counter()
        records = self._contestant.run(Schedule(jobs, len(jobs)))
        wall = time.perf_counter() - start
        return {**summary(records), "outside": 1 - (self._graph_seconds() - before) / wall}

    def prefix(self, task: dict[str, Any]) -> dict[str, Any]:
        """Time to first token of a prompt with a new 1000-token prefix, and of another with the same prefix."""
        return {name: self._first(task[name]) for name in ("cold", "hit")}

    def long(self, task: dict[str, Any]) -> dict[str, Any]:
        """Gaps between the tokens of decode rows, alone and beside the prefill of a long prompt."""
        solo = self._first(task["long"])
        rows = [_Row(self.pipe, tokens) for tokens in task["prompts"][:8]]
        while min(len(row.moments) for row in rows) < 40:
            time.sleep(0.01)
        start = time.perf_counter()
        first = self._first(task["long"])
        end = time.perf_counter()
        for row in rows:
            row.stop()
        alone = [gap for row in rows for _, after, gap in row.gaps()[8:] if after < start]
        beside = [gap for row in rows for before, after, gap in row.gaps() if after > start and before < end]
        return {"gap": max(beside) / median(alone), "first": first / solo, "solo": solo, "alone": median(alone)}

    def _first(self, tokens: Sequence[int]) -> float:
        start = time.perf_counter()
        with self.pipe.stream(tokens=tokens, max_new_tokens=1, temperature=0, ignore_eos=True) as events:
            next(events)
            return time.perf_counter() - start

    def _graph_seconds(self) -> float:
        seconds: Mapping[str, float] = self.pipe.stats()["graph_seconds"]
        return sum(seconds.values())


class _Row:
    """A request that decodes until it is stopped."""

    def __init__(self, pipe: gp.Pipeline, tokens: Sequence[int]) -> None:
        self.moments: list[float] = []
        self._stream = pipe.stream(tokens=tokens, max_new_tokens=4000, temperature=0, ignore_eos=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for event in self._stream:
            if event.token is not None:
                self.moments.append(time.perf_counter())

    def stop(self) -> None:
        """Cancel and wait for the end."""
        self._stream.cancel()
        self._thread.join()

    def gaps(self) -> list[tuple[float, float, float]]:
        """(before, after, seconds) of neighbouring tokens."""
        return [(one, other, other - one) for one, other in itertools.pairwise(self.moments)]


class Bare:
    """One padded batch prefill, then decode steps with a kept binding, on the graph as the engine rewrites it."""

    def __init__(self, package: Path) -> None:
        from genai_pipeline.backends.ort import OrtBackend
        from genai_pipeline.backends.protocol import LoadRequest

        plan = check_package(package).plan
        assert plan is not None
        (component,) = plan.components.values()
        path = package / component.model
        self._graph = OrtBackend().load(LoadRequest(component.spec.name, str(path), str(package), logits="logits"))
        self._tensors = component.states[0].tensors
        self._vocabulary: int = plan.facts["vocab_sizes"]["generate"]
        sizes = {"batch": ROWS, "length": 512}
        self._caches = [
            np.zeros([dim if isinstance(dim, int) else sizes[dim] for dim in tensor.shape], tensor.dtype)
            for tensor in self._tensors
        ]

    def batch(self, task: dict[str, Any]) -> dict[str, Any]:
        """Seconds of the prefill, tokens/s of the steps after it."""
        lengths = np.array([len(tokens) for tokens in task["prompts"]])
        width = int(lengths.max())
        ids = np.zeros((ROWS, width), np.int64)
        for row, tokens in enumerate(task["prompts"]):
            ids[row, : len(tokens)] = tokens
        prefill, step = self._binding(ids), self._binding(np.zeros((ROWS, 1), np.int64))
        start = time.perf_counter()
        token = self._run(prefill, lengths, np.arange(ROWS) * width + lengths - 1)
        first = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(TOKENS - 1):
            lengths += 1
            step[1][:, 0] = token
            token = self._run(step, lengths, np.arange(ROWS))
        return {"first": first, "decode": ROWS * (TOKENS - 1) / (time.perf_counter() - start)}

    def _binding(self, ids: np.ndarray[Any, Any]) -> tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        binding = self._graph.session.io_binding()
        logits = np.zeros((ROWS, self._vocabulary), np.float32)
        binding.bind_input("input_ids", "cpu", 0, np.int64, ids.shape, ids.ctypes.data)
        binding.bind_output("logits", "cpu", 0, np.float32, logits.shape, logits.ctypes.data)
        for tensor, cache in zip(self._tensors, self._caches, strict=True):
            binding.bind_input(tensor.past, "cpu", 0, cache.dtype, cache.shape, cache.ctypes.data)
            binding.bind_output(tensor.present, "cpu", 0, cache.dtype, cache.shape, cache.ctypes.data)
        return binding, ids, logits

    def _run(self, bound: tuple[Any, Any, Any], lengths: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> Any:
        binding, _, logits = bound
        mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        binding.bind_input("attention_mask", "cpu", 0, np.int64, mask.shape, mask.ctypes.data)
        binding.bind_input("logit_rows", "cpu", 0, np.int64, rows.shape, rows.ctypes.data)
        self._graph.session.run_with_iobinding(binding)
        return logits.argmax(axis=1)


class Peer:
    """onnxruntime-genai's continuous-batching engine."""

    def __init__(self, package: Path) -> None:
        from genai_pipeline.cli.benching.peer import PeerContestant

        plan = check_package(package).plan
        assert plan is not None
        self._contestant = PeerContestant(plan, 512)

    def batch(self, task: dict[str, Any]) -> dict[str, Any]:
        """All prompts at once."""
        jobs = tuple(Job(tuple(tokens), TOKENS) for tokens in task["prompts"])
        return dict(summary(self._contestant.run(Schedule(jobs, len(jobs)))))


CONTESTANTS: dict[str, Callable[[Path], Any]] = {
    "own": lambda package: Own(package, prefix_cache=False),
    "cached": lambda package: Own(package, prefix_cache=True),
    "bare": Bare,
    "peer": Peer,
}


class Process(Child):
    """A contestant in a process of its own."""

    def __init__(self, name: str, package: Path) -> None:
        super().__init__(name, [__file__, str(package), "--serve", name])

    def do(self, do: str, **task: Any) -> dict[str, float]:
        """Carry out one task."""
        found: dict[str, float] = self.ask({"do": do, **task})
        print(f"  {self.name} {do}: {found}", file=sys.stderr, flush=True)
        return found


def batches(package: Path, rounds: int) -> list[tuple[str, str, list[float]]]:
    """(what, wanted, ratio per round) of the loads without shared prefixes."""
    asked = prompts(package)
    print(f"{len(asked)} prompts of {min(map(len, asked))} to {max(map(len, asked))} tokens", file=sys.stderr)
    own, peer, bare = (Process(name, package) for name in ("own", "peer", "bare"))
    for process in (own, peer, bare):
        process.do("batch", prompts=asked)
    found: list[dict[str, dict[str, float]]] = []
    for _ in range(rounds):
        found.append({process.name: process.do("batch", prompts=asked) for process in (peer, own, bare)})
        found[-1]["single"] = own.do("batch", prompts=asked[:1])
        found[-1]["eight"] = own.do("batch", prompts=asked[:8])
    for process in (own, peer, bare):
        process.close()
    return [
        ("16 requests: tokens/s over the peer's", ">= 1.5", [r["own"]["rate"] / r["peer"]["rate"] for r in found]),
        ("median first token over a batch prefill", "<= 1.5", [r["own"]["first"] / r["bare"]["first"] for r in found]),
        ("decode tokens/s over a bare loop", ">= 0.9", [r["own"]["decode"] / r["bare"]["decode"] for r in found]),
        ("16 requests over one: tokens/s", ">= 4", [r["own"]["rate"] / r["single"]["rate"] for r in found]),
        ("8 requests: share outside graph runs", "<= 0.05", [r["eight"]["outside"] for r in found]),
    ]


def prefixes(package: Path, rounds: int) -> list[tuple[str, str, list[float]]]:
    """Time to first token of a hit on a 1000-token prefix."""
    own, source = Process("cached", package), random.Random(0)
    found = []
    for _ in range(rounds + 1):
        prefix = [source.randrange(1000, 20000) for _ in range(1000)]
        cold, hit = (prefix + [source.randrange(1000, 20000) for _ in range(16)] for _ in range(2))
        found.append(own.do("prefix", cold=cold, hit=hit))
    own.close()
    return [("first token of a prefix hit over the cold one", "<= 0.1", [r["hit"] / r["cold"] for r in found[1:]])]


def long_prompts(package: Path, rounds: int) -> list[tuple[str, str, list[float]]]:
    """What a 4000-token prompt does to 8 decode rows, and they to it."""
    own, source, asked = Process("own", package), random.Random(0), prompts(package)
    tokens = [source.randrange(1000, 20000) for _ in range(4000)]
    found = [own.do("long", prompts=asked, long=tokens) for _ in range(rounds)]
    own.close()
    return [
        ("largest gap beside a long prefill over the median", "<= 5", [r["gap"] for r in found]),
        ("the long prompt's first token over its solo time", "<= 3", [r["first"] for r in found]),
    ]


PARTS = {"batch": batches, "prefix": prefixes, "long": long_prompts}


def main() -> None:
    """Run the parts and print a line for each ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--serve", choices=CONTESTANTS)
    arguments = parser.parse_args()
    if arguments.serve:
        contestant = CONTESTANTS[arguments.serve](arguments.package)
        answer(lambda task: getattr(contestant, task["do"])(task))
        return
    for part in arguments.only.split(","):
        for what, wanted, ratios in PARTS[part](arguments.package, arguments.rounds):
            listed = " ".join(f"{ratio:.3f}" for ratio in ratios)
            print(f"{what:52s} {median(ratios):7.3f}  wanted {wanted:8s} (of {listed})", flush=True)


if __name__ == "__main__":
    main()

"""Correctness and throughput of a machine's NVIDIA GPU against its CPU, in under five minutes.

    python tools/cuda_check.py [PACKAGE] [--emulate]

Needs onnxruntime-gpu (extra ``gpu``). First closed-form packages, whose answers are arithmetic, then the tokens of
PACKAGE (smollm2-135m in float32 by default) on both: they may part only where the CPU's two likeliest tokens are within
a thousandth of a nat. Last, tokens/s with 1, 8 and 32 requests at once. Exit code 0: all is right, 1: it is not, 5:
there is no such GPU. ``--emulate`` runs all of it on the CPU behind memory of its own in place of a GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import genai_pipeline as gp
from genai_pipeline.backends import registry
from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.ort_memory import OrtMemory, OrtPlace
from genai_pipeline.backends.runtime import onnxruntime
from genai_pipeline.backends.threads import POOL
from genai_pipeline.errors import GenaiError
from genai_pipeline.testing import write_package
from genai_pipeline.testing.devices import SeparateBackend, SeparateMemory

NO_DEVICE = 5
PACKAGE = "smollm2-135m"
CONTEXT = 256  # tokens of prompt and answer, which rows on the device are held for
MARGIN = 1e-3  # nats between the two likeliest tokens, below which either is right
CLOSED_FORMS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("kv", {"update": "in_place"}),
    ("kv", {"update": "in_place", "dtype": "float16"}),
    ("kv", {"update": "scatter"}),
    ("kv", {"update": "append"}),
    ("recurrent", {}),
)
TEXTS = ("a", "bcd", "efghijk", "l" * 17, "mn" * 20, "q" * 33)
QUESTIONS = (
    "Why is the sky blue?",
    "Name three rivers in Europe.",
    "What is a lighthouse for?",
    "How do bees make honey?",
)


@dataclass(frozen=True, slots=True)
class Device:
    """What is checked: its name, the arguments of ``load`` that choose it, and whether it is a real one."""

    name: str
    arguments: Mapping[str, Any]


def find_gpu() -> Device | None:
    """The first NVIDIA GPU that the runtime can use, having said why there is none."""
    try:
        runtime = onnxruntime()
    except GenaiError as error:
        print(f"no check: {error}")
        return None
    if "CUDAExecutionProvider" not in runtime.get_available_providers():
        print("no check: this onnxruntime has no provider 'cuda'; install 'genai-pipeline[gpu]'")
        return None
    POOL.ensure(runtime, None)
    try:
        OrtMemory(runtime, OrtPlace("cuda", 0, "cuda")).allocate((1,), np.dtype(np.uint8))
    except GenaiError as error:
        print(f"no check: the GPU cannot be used: {error}")
        return None
    return Device("cuda", {"backend": "ort", "providers": ("cuda", "cpu")})


def emulated() -> Device:
    """The CPU behind memory of its own."""
    memory = SeparateMemory()
    registry.register("emulated", lambda threads: SeparateBackend(OrtBackend(threads), memory))
    return Device("emulated", {"backend": "emulated"})


def ask(pipe: gp.Pipeline, prompts: Sequence[str | list[int]], **options: Any) -> list[list[Any]]:
    """The events with a token of greedy requests that are all submitted before the first is read."""
    asked: list[dict[str, Any]] = [{"prompt" if isinstance(prompt, str) else "tokens": prompt} for prompt in prompts]
    streams = [pipe.stream(**prompt, temperature=0, **options) for prompt in asked]
    return [[event for event in stream if event.token is not None] for stream in streams]


def tokens_of(events: Sequence[Any]) -> list[int]:
    """The tokens of events."""
    return [event.token for event in events]


def closed_forms(device: Device) -> list[str]:
    """Batched, chunked and from the cache; faults in words."""
    faults = []
    for kind, options in CLOSED_FORMS:
        with tempfile.TemporaryDirectory() as folder:
            package = write_package(folder, kind, **options)
            prompts = [package.vocabulary.encode(text) for text in TEXTS]
            with gp.load(package.path, max_batch=4, prefill_chunk=16, **device.arguments) as pipe:
                right = [package.answer(prompt, 12) for prompt in prompts]
                found = [[tokens_of(row) for row in ask(pipe, prompts, max_new_tokens=12)] for _ in range(2)]
                where, on_device = placement(pipe), all(graph.memory for graph in pipe._assembly.graphs.values())
            name = " ".join([kind, *map(str, options.values())])
            print(f"  {name:22s} {'equal' if found == [right, right] else 'WRONG'}   {where}", flush=True)
            if found != [right, right]:
                faults.append(f"closed form {name}: {found}, not {right}")
            if not on_device:
                faults.append(f"closed form {name} does not run on {device.name}")
    return faults


def placement(pipe: gp.Pipeline) -> str:
    """Where the nodes of each graph run, and where its state lies."""
    parts = []
    for name, graph in pipe._assembly.graphs.items():
        nodes = ", ".join(f"{count} on {provider}" for provider, count in graph.placement.items())
        parts.append(f"{name}: {nodes}; state in {graph.memory.device if graph.memory else 'host memory'}")
    return "; ".join(parts)


def parting(cpu: Sequence[Any], device: Sequence[Any]) -> str:
    """What is wrong with a device's tokens, in words; empty where they are the CPU's, or part where the CPU wavers."""
    for index, (one, other) in enumerate(zip(cpu, device, strict=False)):
        if one.token != other.token:
            first, second = one.logprobs.top[:2]
            margin = first.logprob - second.logprob
            print(f"  part at token {index}: {one.token} and {other.token}, margin {margin:.2g} nats", flush=True)
            return "" if margin <= MARGIN else f"token {index} is {other.token}, not {one.token} (margin {margin:.2g})"
    return "" if len(cpu) == len(device) else f"{len(device)} tokens, not {len(cpu)}"


def rate(pipe: gp.Pipeline, batch: int, count: int) -> float:
    """Tokens/s of so many requests at once, with their prompts."""
    asked = [QUESTIONS[i % len(QUESTIONS)] for i in range(batch)]
    start = time.perf_counter()
    rows = ask(pipe, asked, max_new_tokens=count, ignore_eos=True)
    return sum(len(row) for row in rows) / (time.perf_counter() - start)


def compare(package: str, device: Device, batches: Sequence[int], count: int) -> list[str]:
    """Tokens of both, then a table of tokens/s; faults in words."""
    options: dict[str, Any] = {"context_length": CONTEXT, "max_batch": max(batches), "prefix_cache": False}
    if not Path(package).exists():
        options["precision"] = "float32"
    answers: dict[str, list[list[Any]]] = {}
    rates: dict[str, list[float]] = {}
    for name, arguments in (("cpu", {"providers": ("cpu",)}), (device.name, device.arguments)):
        with gp.load(package, **options, **arguments) as pipe:
            print(f"  {name}: {placement(pipe)}", flush=True)
            answers[name] = ask(pipe, QUESTIONS, max_new_tokens=count, logprobs=True, top_logprobs=2)
            rates[name] = [rate(pipe, batch, count) for batch in batches]
    print("  requests   cpu tokens/s   " + f"{device.name} tokens/s   ratio")
    for batch, cpu, other in zip(batches, rates["cpu"], rates[device.name], strict=True):
        print(f"  {batch:8d} {cpu:14.1f} {other:{len(device.name) + 11}.1f} {other / cpu:7.2f}")
    found = (parting(cpu, other) for cpu, other in zip(answers["cpu"], answers[device.name], strict=True))
    return [f"{package}: {QUESTIONS[i]!r}: {fault}" for i, fault in enumerate(found) if fault]


def main() -> int:
    """Check, print, and give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="?", default=PACKAGE, help="a folder or a known name")
    parser.add_argument("--emulate", action="store_true", help="on the CPU, behind memory of its own")
    parser.add_argument("--batches", default="1,8,32", help="numbers of requests at once")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each answer")
    arguments = parser.parse_args()
    device = emulated() if arguments.emulate else find_gpu()
    if device is None:
        return NO_DEVICE
    start = time.perf_counter()
    print(f"closed forms on {device.name}:")
    faults = closed_forms(device)
    print(f"{arguments.package} on cpu and {device.name}:")
    faults += compare(arguments.package, device, [int(n) for n in arguments.batches.split(",")], arguments.tokens)
    for fault in faults:
        print(f"WRONG: {fault}")
    print(f"{'FAILED' if faults else 'all right'}, in {time.perf_counter() - start:.0f} s")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())

"""Prints what a decode step costs outside the graph run: kept bindings, bindings made anew, and a bare loop.

Usage: python tools/bench_binding.py MODEL.onnx [--steps 48] [--rounds 5] [--threads N]

MODEL is a decoder with ``in_place`` state, ``input_ids`` and ``attention_mask``. The three ways take turns, a step
each, so that a busy machine slows all of them alike; the figures are medians over the steps of a round.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.protocol import Buffer, LoadedGraph, LoadRequest
from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv.geometry import TensorLayout
from genai_pipeline.kv.pool import KvPool

CAPACITY = 4096
PAST = re.compile(r"past_key_values\.(\d+)\.(key|value)")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    path = args.model.resolve()
    graph = OrtBackend(threads=args.threads).load(LoadRequest("decoder", str(path), str(path.parent), logits="logits"))
    for note in graph.notes:
        print(note)
    ways = {
        "bare": bare(graph),
        "kept": ours(graph, keep=True),
        "anew": ours(graph, keep=False),
    }
    for _ in range(args.rounds):
        for name, (step, outside) in take_turns(graph, ways, args.steps).items():
            print(f"{name}: step {1e3 * step:7.3f} ms, outside the run {1e6 * outside:6.1f} us ({outside / step:.2%})")


def take_turns(graph: Any, ways: dict[str, Iterator[None]], steps: int) -> dict[str, tuple[float, float]]:
    """Median seconds of a step of each way, and those of it that are not spent inside the graph run."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(steps):
        for name, way in ways.items():
            inside, start = graph.graph_seconds, time.perf_counter()
            next(way)
            step = time.perf_counter() - start
            times[name].append((step, step - (graph.graph_seconds - inside)))
    return {name: tuple(map(statistics.median, zip(*pairs, strict=True))) for name, pairs in times.items()}


def bare(graph: Any) -> Iterator[None]:
    """Steps on the runtime's own objects with a binding that is kept."""
    io, native, place, options = graph.session.io_binding(), graph.native, graph.place, graph.run_options
    raw = io._iobinding
    caches = []
    for tensor in state_of(graph.signature).tensors:
        cache = np.zeros(TensorLayout.of(tensor).shape(1, CAPACITY), np.float32)
        caches.append(cache)
        raw.bind_input(tensor.past, place, 1, cache.shape, cache.ctypes.data)
        raw.bind_output(tensor.present, place, 1, cache.shape, cache.ctypes.data)
    logits = logits_memory(graph)
    raw.bind_output("logits", place, 1, logits.shape, logits.ctypes.data)
    token, mask, rows = np.full((1, 1), 42, np.int64), np.ones((1, CAPACITY), np.int64), np.zeros(1, np.int64)
    raw.bind_input("input_ids", place, 7, token.shape, token.ctypes.data)
    if graph.logit_rows:
        raw.bind_input("logit_rows", place, 7, rows.shape, rows.ctypes.data)
    for length in range(1, CAPACITY):
        raw.bind_input("attention_mask", place, 7, (1, length), mask.ctypes.data)
        start = time.perf_counter()
        native.run_with_iobinding(raw, options)
        graph.add_seconds(time.perf_counter() - start)
        yield


def ours(graph: LoadedGraph, *, keep: bool) -> Iterator[None]:
    """Steps through this project's binding and pool; not ``keep``: with a new binding each."""
    pool = KvPool({"decoder": [state_of(graph.signature)]}, max_rows=2, capacity=CAPACITY)
    row = pool.open()
    assert row is not None
    logits = Buffer.of(logits_memory(graph))
    token, mask, rows = np.full((1, 1), 42, np.int64), np.ones((1, CAPACITY), np.int64), np.zeros(1, np.int64)
    growing = Buffer.of(mask)
    fixed = {"input_ids": Buffer.of(token), **({"logit_rows": Buffer.of(rows)} if graph.logit_rows else {})}
    binding = graph.binding()
    for length in range(CAPACITY - 1):
        for port, buffer in fixed.items():
            binding.bind_input(port, buffer)
        binding.bind_input("attention_mask", growing.shaped((1, length + 1)))
        pool.reserve(row, length + 1)
        pool.bind("decoder", binding, (row,), (length,), (1,))
        binding.bind_output("logits", logits)
        binding.run()
        pool.commit((row,), (length + 1,))
        yield
        if not keep:
            binding = graph.binding()


def state_of(signature: Any) -> StatePlan:
    """The in-place state of a decoder, from its port names."""
    tensors = []
    for name, port in signature.inputs.items():
        if found := PAST.fullmatch(name):
            layer, part = int(found[1]), found[2]
            shape = ("batch", port.shape[1], "length", port.shape[3])
            tensors.append(StateTensor(layer, part, name, f"present.{layer}.{part}", port.dtype, shape))
    return StatePlan("in_place", tuple(tensors))


def logits_memory(graph: LoadedGraph) -> NDArray[np.float32]:
    """Memory for the logits of one token."""
    shape = graph.signature.outputs["logits"].shape
    assert shape is not None
    leading = (1,) if graph.logit_rows else (1, 1)
    return np.empty((*leading, int(shape[-1])), np.float32)


if __name__ == "__main__":
    main()

"""Time to choose the tokens of one batch, by options; beside the graph's own step time where a package is given.

    python tools/bench_sampling.py [PACKAGE_FOLDER] [--rows 16] [--vocabulary 49152] [--repeats 50]

Logits are random with a few likely tokens, as a language model's are. Every case is timed with sequences of 500 prompt
tokens that have chosen 100 already; a time includes bringing the sequences' state up to date. Prints the median and the
fastest of all repeats, and with a package (loaded first, its step measured with as many sequences, then closed) the
median's share of the graph's step, with what is wanted of it.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.sampling.params import GenerationOptions, resolve_options
from genai_pipeline.sampling.sampler import Draw, choose_tokens
from genai_pipeline.sampling.state import Chosen, sampling_state

PROMPT, OUTPUT = 500, 100
PENALTIES = {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.1}
CASES: dict[str, tuple[dict[str, Any], float | None]] = {  # options, wanted share of a step
    "greedy": ({"temperature": 0}, 0.02),
    "greedy, penalties": ({"temperature": 0, **PENALTIES}, None),
    "greedy, constraint mask": ({"temperature": 0}, None),
    "greedy, model logprobs": ({"temperature": 0, "logprobs": True, "top_logprobs": 5}, None),
    "top_k 40, top_p 0.9, penalties": ({"temperature": 0.8, "top_k": 40, "top_p": 0.9, **PENALTIES}, 0.10),
    "the same, constraint mask": ({"temperature": 0.8, "top_k": 40, "top_p": 0.9, **PENALTIES}, None),
    "temperature": ({"temperature": 0.8}, None),
    "top_p 0.9": ({"temperature": 0.8, "top_p": 0.9}, None),
    "min_p 0.05": ({"temperature": 0.8, "min_p": 0.05}, None),
    "typical_p 0.9": ({"temperature": 0.8, "typical_p": 0.9}, None),
    "mirostat": ({"temperature": 0.8, "mirostat": 2}, None),
    "DRY, XTC, top_k 40": (
        {
            "temperature": 0.8,
            "top_k": 40,
            "dry_multiplier": 0.8,
            "dry_sequence_breakers": [198],
            "xtc_probability": 0.5,
        },
        None,
    ),
}


def random_logits(generator: np.random.Generator, rows: int, vocabulary: int) -> NDArray[np.float32]:
    """Rows in which a dozen tokens hold most of the probability."""
    logits = generator.normal(scale=1.5, size=(rows, vocabulary)).astype(np.float32)
    for row in logits:
        row[generator.integers(0, vocabulary, 12)] += generator.normal(10, 2, 12).astype(np.float32)
    return logits


def times(name: str, options: GenerationOptions, rows: int, vocabulary: int, repeats: int) -> list[float]:
    """Seconds of each repeat of one case."""
    generator = np.random.default_rng(7)
    logits = random_logits(generator, rows, vocabulary)
    states = [sampling_state(options, generator.integers(0, vocabulary, PROMPT).tolist()) for _ in range(rows)]
    outputs = generator.integers(0, vocabulary, (rows, OUTPUT)).tolist()
    for state, output in zip(states, outputs, strict=True):
        if state is not None:
            for token in output:
                state.accept(Chosen(token))
    words = generator.integers(-(2**31), 2**31, (rows, (vocabulary + 31) // 32), np.int64).astype(np.int32)
    masks = words if "mask" in name else [None] * rows
    found: list[float] = []
    for index in range(repeats):
        work = logits.copy()
        start = time.perf_counter()
        draws = [
            Draw(options, seed, 0, OUTPUT + index, None, state, mask)
            for seed, (state, mask) in enumerate(zip(states, masks, strict=True))
        ]
        for state, chosen in zip(states, choose_tokens(work, draws), strict=True):
            if state is not None:
                state.accept(chosen)
        found.append(time.perf_counter() - start)
    return found


def step_seconds(package: Path, rows: int) -> float:
    """Median seconds of graph runs per step while ``rows`` sequences decode together."""
    import genai_pipeline as gp

    with gp.load(package, max_batch=rows, prefix_cache=False) as pipe:
        prompt = list(range(100, 140))
        counts = [0] * rows
        streams = [pipe.stream(tokens=prompt, max_new_tokens=200, temperature=0, ignore_eos=True) for _ in range(rows)]

        def read(row: int) -> None:
            for event in streams[row]:
                counts[row] += event.token is not None

        threads = [threading.Thread(target=read, args=(row,), daemon=True) for row in range(rows)]
        for thread in threads:
            thread.start()
        samples: list[float] = []
        wait_until(partial(passed, counts, 16))
        while max(counts) < 150:
            before = pipe.stats()
            wait_until(partial(passed, counts, min(counts) + 16))
            after = pipe.stats()
            seconds = sum(after["graph_seconds"].values()) - sum(before["graph_seconds"].values())
            samples.append(seconds / (after["steps"] - before["steps"]))
        for stream in streams:
            stream.cancel()
        for thread in threads:
            thread.join()
    return median(samples)


def passed(counts: list[int], tokens: int) -> bool:
    """Whether every sequence has so many tokens."""
    return min(counts) >= tokens


def wait_until(true: Callable[[], bool]) -> None:
    """Look every millisecond."""
    while not true():
        time.sleep(0.001)


def main() -> None:
    """Time every case and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--repeats", type=int, default=50)
    arguments = parser.parse_args()
    step = step_seconds(arguments.package, arguments.rows) if arguments.package else None
    if step is not None:
        print(f"graph step with {arguments.rows} sequences: {1000 * step:.1f} ms")
    for name, (options, wanted) in CASES.items():
        found = times(name, resolve_options(options), arguments.rows, arguments.vocabulary, arguments.repeats)
        line = f"{name:32s} {1000 * median(found):7.2f} ms (fastest {1000 * min(found):.2f})"
        if step is not None:
            line += f"  {100 * median(found) / step:6.2f} % of the step"
            line += f", wanted at most {100 * wanted:.0f} %" if wanted is not None else ""
        print(line, flush=True)


if __name__ == "__main__":
    main()

"""Decode speed at batch 1: the engine, a bare loop with a kept binding, and onnxruntime-genai on the same ONNX file.

    python tools/bench_decode.py PACKAGE_FOLDER [--tokens 64] [--pairs 5] [--peers loop,genai]

Each contestant lives in a process of its own (several spinning thread pools in one process slow each other down) and
they take turns, so that a ratio compares neighbours in time. Prints the median ratio of each peer to the engine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from genai_pipeline.cli.benching.turns import Child, answer

PROMPT = "Write a short story about a lighthouse keeper."


def engine(package: Path, tokens: int) -> Callable[[], dict[str, float]]:
    """The engine: greedy, one request at a time."""
    import genai_pipeline as gp

    pipe = gp.load(package)

    def run() -> dict[str, float]:
        before = {name: graph.graph_seconds for name, graph in pipe._assembly.graphs.items()}
        moments: list[float] = []
        for event in pipe.stream(PROMPT, max_new_tokens=tokens, temperature=0, ignore_eos=True):
            if event.token is not None:
                moments.append(time.perf_counter())
                if len(moments) == 1:
                    before = {name: graph.graph_seconds for name, graph in pipe._assembly.graphs.items()}
        graph = sum(graph.graph_seconds - before[name] for name, graph in pipe._assembly.graphs.items())
        wall = moments[-1] - moments[0]
        return {"step": wall / (len(moments) - 1), "overhead": (wall - graph) / wall}

    return run


def prompt_ids(package: Path) -> list[int]:
    """The prompt as the package's own template and tokenizer encode it."""
    from tokenizers import Tokenizer

    text = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    )
    return list(Tokenizer.from_file(str(package / "tokenizer.json")).encode(text).ids)


def loop(package: Path, tokens: int) -> Callable[[], dict[str, float]]:
    """A bare loop: one kept binding, the same global thread pool, a growing mask, argmax."""
    import numpy as np
    import onnxruntime as ort

    from genai_pipeline.backends.threads import POOL

    settings = ort.SessionOptions()
    POOL.ensure(ort, None)
    settings.use_per_session_threads = False
    session = ort.InferenceSession(str(package / "model.onnx"), settings, providers=["CPUExecutionProvider"])
    past = [i for i in session.get_inputs() if i.name.startswith("past")]
    heads, dim = past[0].shape[1], past[0].shape[3]
    capacity = 2048
    caches = {i.name: np.zeros((1, heads, capacity, dim), np.float32) for i in past}
    vocabulary = next(o for o in session.get_outputs() if o.name == "logits").shape[-1]
    prompt = np.array([prompt_ids(package)], np.int64)
    ones = np.ones((1, capacity), np.int64)

    def make(width: int) -> tuple[Any, Any, Any]:
        binding = session.io_binding()
        ids = np.zeros((1, width), np.int64)
        logits = np.zeros((1, width, vocabulary), np.float32)
        binding.bind_input("input_ids", "cpu", 0, np.int64, ids.shape, ids.ctypes.data)
        binding.bind_output("logits", "cpu", 0, np.float32, logits.shape, logits.ctypes.data)
        for name, cache in caches.items():
            present = name.replace("past_key_values", "present")
            binding.bind_input(name, "cpu", 0, np.float32, cache.shape, cache.ctypes.data)
            binding.bind_output(present, "cpu", 0, np.float32, cache.shape, cache.ctypes.data)
        return binding, ids, logits

    step = make(1)

    def run() -> dict[str, float]:
        binding, ids, logits = make(prompt.shape[1])
        ids[:] = prompt
        length = prompt.shape[1]
        binding.bind_input("attention_mask", "cpu", 0, np.int64, (1, length), ones.ctypes.data)
        session.run_with_iobinding(binding)
        token = int(logits[0, -1].argmax())
        binding, ids, logits = step
        start = time.perf_counter()
        for _ in range(tokens - 1):
            length += 1
            ids[0, 0] = token
            binding.bind_input("attention_mask", "cpu", 0, np.int64, (1, length), ones.ctypes.data)
            session.run_with_iobinding(binding)
            token = int(logits[0, 0].argmax())
        return {"step": (time.perf_counter() - start) / (tokens - 1)}

    return run


def genai(package: Path, tokens: int) -> Callable[[], dict[str, float]]:
    """onnxruntime-genai's own generator on the same graph."""
    import onnxruntime_genai as og

    folder = Path(tempfile.mkdtemp(prefix="bench-genai-"))
    for file in ("model.onnx", "model.onnx.data", "tokenizer.json"):
        (folder / file).symlink_to((package / file).resolve())
    write_genai_config(package, folder)
    model = og.Model(str(folder))
    prompt = prompt_ids(package)

    def run() -> dict[str, float]:
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=len(prompt) + tokens, min_length=len(prompt) + tokens, do_sample=False)
        generator = og.Generator(model, params)
        generator.append_tokens(prompt)
        generator.generate_next_token()
        start = time.perf_counter()
        for _ in range(tokens - 1):
            generator.generate_next_token()
        return {"step": (time.perf_counter() - start) / (tokens - 1)}

    return run


def write_genai_config(package: Path, folder: Path) -> None:
    """The peer's configuration of a llama-like decoder, read off the graph's ports."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(package / "model.onnx"), providers=["CPUExecutionProvider"])
    past = [i for i in session.get_inputs() if i.name.endswith(".key")]
    config = {
        "model": {
            "type": "llama",
            "bos_token_id": 1,
            "eos_token_id": [2, 0],
            "pad_token_id": 2,
            "context_length": 8192,
            "vocab_size": next(o for o in session.get_outputs() if o.name == "logits").shape[-1],
            "decoder": {
                "session_options": {"provider_options": []},
                "filename": "model.onnx",
                "head_size": past[0].shape[3],
                "hidden_size": 576,
                "num_attention_heads": 9,
                "num_hidden_layers": len(past),
                "num_key_value_heads": past[0].shape[1],
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"max_length": 2048, "do_sample": False, "past_present_share_buffer": True},
    }
    (folder / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")


CONTESTANTS = {"engine": engine, "loop": loop, "genai": genai}


def serve(name: str, package: Path, tokens: int) -> None:
    """Warm up, then run once for each question."""
    run = CONTESTANTS[name](package, tokens)
    run()
    answer(lambda _: run())


def main() -> None:
    """Interleave the contestants and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--peers", default="loop,genai")
    parser.add_argument("--serve", choices=CONTESTANTS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.package, arguments.tokens)
        return
    names = ["engine", *arguments.peers.split(",")]
    shared = [__file__, str(arguments.package), "--tokens", str(arguments.tokens), "--serve"]
    contestants = [Child(name, [*shared, name]) for name in names]
    runs = [{child.name: child.ask(None) for child in contestants} for _ in range(arguments.pairs)]
    for child in contestants:
        child.close()
    for name in names:
        print(f"{name:8s} step {1000 * statistics.median(run[name]['step'] for run in runs):7.2f} ms (median)")
    overheads = [run["engine"]["overhead"] for run in runs]
    print(f"engine work outside graph runs: {100 * statistics.median(overheads):.2f} % of a step (median)")
    for name in names[1:]:
        ratios = [run[name]["step"] / run["engine"]["step"] for run in runs]
        listed = " ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"engine tokens/s over {name}: {statistics.median(ratios):.3f} (median of {listed})")


if __name__ == "__main__":
    main()

"""What a GGUF import's precisions cost and lose, next to integer zero points: step time at batch 1, divergence.

    python tools/bench_precisions.py MODEL.gguf CASES.json [--batch 1] [--pairs 5] [--steps 40]

CASES.json holds ``cases`` with ``prompt_tokens`` and ``greedy_tokens``. Blocks with a minimum (Q4_1) can also be kept
as 4-bit codes with rounded integer zero points, the common way to store them; it loses too much to be a precision of
the importer and is built here for comparison only: with a float32 head, as it is usually made, and with the head of
``fast``. All sessions share one thread pool and take turns; a ratio is the median over pairs of measurements.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from genai_pipeline.graph import onnx_file
from genai_pipeline.importers.gguf.architecture import DecoderConfig, read_config
from genai_pipeline.importers.gguf.graph_builder import write_decoder
from genai_pipeline.importers.gguf.linear import PRECISIONS, Precision
from genai_pipeline.importers.gguf.matrices import encode_dense, encode_exact
from genai_pipeline.importers.gguf.reader import GgufTensor, open_gguf
from genai_pipeline.importers.graphs.matrices import Matrix

ROOM = 512  # tokens the cache buffers hold
BURST = 4  # steps in a row that one variant runs
PAST = 100  # tokens in use while steps are timed


def float_head(tensors: Sequence[GgufTensor]) -> Matrix:
    """Stored codes for the layers, float32 for the table that embedding and head share."""
    return encode_dense(tensors) if tensors[0].name == "token_embd.weight" else encode_exact(tensors)


def build_all(source: Path, folder: Path) -> dict[str, Path]:
    """Writes every variant and returns the model files by variant name."""
    file = open_gguf(source)
    config = read_config(file)
    made = {}
    same_head, other_head = PRECISIONS["fast"], Precision("fast", float_head, 4)
    variants = {**PRECISIONS, "integer zero points": same_head, "integer zero points, float32 head": other_head}
    for name, precision in variants.items():
        target = folder / name.replace(" ", "_") / "model.onnx"
        target.parent.mkdir()
        write_decoder(file, config, precision, target, lambda done, what: None)
        if "zero points" in name:
            round_offsets(target)
        made[name] = target
    return made


def round_offsets(path: Path) -> None:
    """Replaces the product that adds block offsets by integer zero points of the main product."""
    ir = onnx_file.ir
    model = ir.load(path)
    nodes: list[Any] = list(model.graph)
    for correction in [node for node in nodes if node.name is not None and node.name.endswith(".corrected")]:
        sums, product = correction.inputs[0].producer(), correction.inputs[2].producer()
        offsets, scales = correction.inputs[1].const_value.numpy().T, product.inputs[2].const_value.numpy()
        points = np.clip(np.rint(8 - offsets / np.where(scales == 0, 1, scales)), 0, 15).astype(np.uint8)
        points = np.pad(points, ((0, 0), (0, points.shape[1] % 2)))
        tensor = ir.Tensor(points[:, 0::2] | (points[:, 1::2] << np.uint8(4)), name=f"{product.name}.points")
        value = ir.Value(name=tensor.name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        model.graph.register_initializer(value)
        product.resize_inputs(4)
        product.replace_input_with(3, value)
        ir.convenience.replace_all_uses_with(correction.outputs[0], product.outputs[0])
        model.graph.remove([correction, sums, sums.inputs[0].producer()], safe=True)
    ir.save(model, path)


@dataclass(frozen=True)
class Decoder:
    """A session with a kept binding for one decode step after ``PAST`` tokens, repeated at will."""

    session: Any
    binding: Any
    arrays: Sequence[Any]  # kept alive: the binding points into them

    def step(self) -> float:
        """Seconds of one step."""
        started = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - started


def open_session(path: Path) -> Any:
    """A CPU session on the shared thread pool."""
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = 3  # offsets that lost their reader are no news
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def bind(session: Any, config: DecoderConfig, batch: int) -> Decoder:
    """Binds one step: cache buffers serve as past and present."""
    binding = session.io_binding()
    arrays = []

    def keep(array: Any) -> Any:
        arrays.append(array)
        return ort.OrtValue.ortvalue_from_numpy(array)

    binding.bind_ortvalue_input("input_ids", keep(np.full((batch, 1), 5, dtype=np.int64)))
    binding.bind_ortvalue_input("attention_mask", keep(np.ones((batch, PAST + 1), dtype=np.int64)))
    for name in (f"{layer}.{part}" for layer in range(config.layers) for part in ("key", "value")):
        shape = (batch, config.kv_heads, ROOM, config.head_dim)
        cache = keep(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
        binding.bind_ortvalue_input(f"past_key_values.{name}", cache)
        binding.bind_ortvalue_output(f"present.{name}", cache)
    binding.bind_ortvalue_output("logits", keep(np.zeros((batch, 1, config.vocabulary), dtype=np.float32)))
    return Decoder(session, binding, arrays)


def forced_logits(session: Any, config: DecoderConfig, cases: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """Log-probabilities at every position that predicts a greedy token."""
    shape = (1, config.kv_heads, 0, config.head_dim)
    past = [port.name for port in session.get_inputs() if port.name.startswith("past_key_values.")]
    for case in cases:
        tokens = np.array([case["prompt_tokens"] + case["greedy_tokens"]], dtype=np.int64)
        feeds = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
        empty = {name: np.zeros(shape, dtype=np.float32) for name in past}
        logits = session.run(["logits"], feeds | empty)[0][0].astype(np.float64)
        shifted = logits - logits.max(axis=-1, keepdims=True)
        yield shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def report_divergence(found: dict[str, list[Any]], cases: Sequence[dict[str, Any]]) -> None:
    """Prints each variant's mean divergence from float32, over all positions and over those of answers."""
    answers = [slice(len(case["prompt_tokens"]) - 1, -1) for case in cases]
    for name, rows in found.items():
        pairs = list(zip(found["float32"], rows, strict=True))
        lost = [(np.exp(p) * (p - q)).sum(axis=-1) for p, q in pairs]
        same = np.concatenate([p.argmax(-1) == q.argmax(-1) for p, q in pairs]).mean()
        answered = np.concatenate([row[part] for row, part in zip(lost, answers, strict=True)])
        print(f"{name:36} mean KL {np.concatenate(lost).mean():.2e} (answers {answered.mean():.2e})  top-1 {same:.1%}")


def report_speed(decoders: dict[str, Decoder], pairs: int, steps: int) -> None:
    """Prints milliseconds a step and speed relative to ``fast``; within a pair, all take turns in short bursts."""
    times: dict[str, list[float]] = {name: [] for name in decoders}
    for _ in range(pairs):
        bursts: dict[str, list[float]] = {name: [] for name in decoders}
        for _ in range(steps // BURST):
            for name, decoder in decoders.items():
                decoder.step()  # brings this variant's weights back into the caches
                bursts[name].append(min(decoder.step() for _ in range(BURST)))
        for name, taken in bursts.items():
            times[name].append(statistics.median(taken))
    for name, taken in times.items():
        ratio = statistics.median(other / own for own, other in zip(times["fast"], taken, strict=True))
        print(f"{name:36} {statistics.median(taken) * 1e3:6.2f} ms a step; fast is {ratio:.3f} times as fast")


def main() -> None:
    """Builds, measures and prints."""
    parser = argparse.ArgumentParser(description="cost and loss of a GGUF import's precisions")
    parser.add_argument("model", type=Path)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    cases = json.loads(given.cases.read_text(encoding="utf-8"))["cases"]
    ort.set_global_thread_pool_sizes(given.threads, 1)
    config = read_config(open_gguf(given.model))
    with tempfile.TemporaryDirectory() as folder:
        sessions = {name: open_session(path) for name, path in build_all(given.model, Path(folder)).items()}
        report_divergence({name: list(forced_logits(s, config, cases)) for name, s in sessions.items()}, cases)
        decoders = {name: bind(session, config, given.batch) for name, session in sessions.items()}
        report_speed(decoders, given.pairs, given.steps)


if __name__ == "__main__":
    main()

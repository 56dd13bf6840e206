"""Random numbers inside graphs follow from a seed once lifted, in the distribution the node had; others are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.external_data import load_model
from genai_pipeline.graph.lifted_noise import lift_random_nodes, noise_like
from genai_pipeline.graph.onnx_file import model_bytes, read_signature
from genai_pipeline.graph.random_nodes import RANDOM_SEED, RandomNode
from genai_pipeline.testing.builder import GraphBuilder

MASK = (1 << 64) - 1
Run = Callable[..., NDArray[Any]]
SEED = 123456789012345


@pytest.fixture
def run(run_graph: Callable[..., list[Any]]) -> Run:
    """Runs a lifted model with a seed."""

    def seeded(model: bytes, seed: int, **inputs: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = run_graph(model, **{RANDOM_SEED: np.array(seed, np.int64)}, **inputs)[0]
        return found

    return seeded


def lifted(op: str, *, copies: int = 1, **attributes: Any) -> bytes:
    """A lifted model whose output is what the last of ``copies`` nodes of that operation gives for the input ``x``."""
    graph = GraphBuilder("noise")
    x = graph.input("x", "float32", ["b", "c"])
    values = [graph.op(op, x, **attributes) for _ in range(copies)]
    result = values[-1]
    if copies > 1:  # keep the others in the graph
        result = graph.op("Sub", graph.op("Sum", *values), graph.op("Sum", *values[:-1]))
    graph.output("y", result, "float32", ["b", "c"])
    model = graph.model()
    assert len(lift_random_nodes(model)) == copies
    return model_bytes(model, "/")


def words(seed: int, place: int, size: int) -> list[int]:
    """The 64 bits of each element, in whole numbers: what the module's text says."""

    def squares(counter: int) -> int:
        key = 0xC8E4FD154CE32F6D
        y = x = counter * key & MASK
        z = y + key & MASK
        for added in (y, z, y):
            x = x * x + added & MASK
            x = x >> 32 | x << 32 & MASK
        bits = x * x + z & MASK
        x = bits >> 32 | bits << 32 & MASK
        return bits + ((x * x + y & MASK) >> 32) & MASK

    start = squares(seed + place * 0x9E3779B97F4A7C15 & MASK)
    return [squares(start + i & MASK) for i in range(size)]


def uniforms(seed: int, place: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    bits = words(seed, place, size)
    first = np.array([(word >> 40) + 1 for word in bits], np.float64) / 2**24
    second = np.array([(word >> 16 & 0xFFFFFF) + 1 for word in bits], np.float64) / 2**24
    return first, second


def normals(seed: int, place: int, size: int) -> np.ndarray:
    first, second = uniforms(seed, place, size)
    return np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)


@pytest.mark.parametrize("place", [0, 3])
def test_normal_numbers_are_those_of_the_formula(run: Run, place: int) -> None:
    loaded = lifted("RandomNormalLike", copies=place + 1, mean=2.0, scale=3.0)
    got = run(loaded, SEED, x=np.zeros((3, 50), np.float32))
    tolerance = 3e-5 * (place + 1)  # of the sums around it
    np.testing.assert_allclose(got.reshape(-1), 2 + 3 * normals(SEED, place, 150), atol=tolerance)


def test_uniform_numbers_are_those_of_the_formula_and_of_numpy(run: Run) -> None:
    loaded = lifted("RandomUniformLike", low=-1.0, high=3.0)
    got = run(loaded, SEED, x=np.zeros((2, 40), np.float32)).reshape(-1)
    first, second = uniforms(SEED, 0, 80)
    np.testing.assert_allclose(got, -1 + 4 * (first - 2.0**-24), atol=1e-6)
    ours = noise_like(SEED, 0, 80)
    np.testing.assert_array_equal(ours[0], first.astype(np.float32))
    np.testing.assert_array_equal(ours[1], second.astype(np.float32))


def test_a_seed_repeats_and_another_differs_whatever_ran_before(run: Run) -> None:
    loaded = lifted("RandomNormalLike")
    x = np.zeros((4, 9), np.float32)
    first = run(loaded, 1, x=x)
    assert not np.array_equal(run(loaded, 2, x=x), first)
    run(loaded, 3, x=np.zeros((1, 2), np.float32))
    np.testing.assert_array_equal(run(loaded, 1, x=x), first)


def test_elements_and_neighbouring_seeds_are_independent_and_normal(run: Run) -> None:
    loaded = lifted("RandomNormalLike")
    x = np.zeros((100, 2000), np.float32)
    for seed in (0, 1, 2**62):
        got = run(loaded, seed, x=x).astype(np.float64)
        flat, n = got.reshape(-1), got.size
        assert abs(flat.mean()) < 5 / np.sqrt(n)
        assert abs(flat.var() - 1) < 5 * np.sqrt(2 / n)
        assert abs((flat**3).mean()) < 5 * np.sqrt(15 / n)
        assert abs((flat**4).mean() - 3) < 5 * np.sqrt(96 / n)
        other = run(loaded, seed + 1, x=x).astype(np.float64).reshape(-1)
        for lag in (1, 2, 2000):
            assert abs((flat[lag:] * flat[:-lag]).mean()) < 5 / np.sqrt(n)
        assert abs((flat * other).mean()) < 5 / np.sqrt(n)


def test_every_byte_of_the_bits_is_even() -> None:
    bits = np.array(words(7, 1, 20000), np.uint64).view(np.uint8).reshape(-1, 8)
    for byte in bits.T:
        expected = len(byte) / 256
        chi_squared = ((np.bincount(byte, minlength=256) - expected) ** 2 / expected).sum()
        assert abs(chi_squared - 255) < 6 * np.sqrt(2 * 255)


def test_fixed_shapes_and_other_types(run: Run) -> None:
    graph = GraphBuilder("fixed")
    x = graph.input("x", "float32", ["b", "c"])
    noise = graph.op("RandomNormal", shape=[5, 7], dtype=11)
    graph.output("noise", noise, "float64", [5, 7])
    graph.output("y", x, "float32", ["b", "c"])
    built = graph.model()
    lift_random_nodes(built)
    got = run(model_bytes(built, "/"), 5, x=np.zeros((1, 1), np.float32))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got.reshape(-1), normals(5, 0, 35), atol=1e-5)


def test_bernoulli_draws_one_with_the_chance_given(run: Run) -> None:
    loaded = lifted("Bernoulli")
    chances = np.repeat(np.array([[0.0], [0.2], [0.9], [1.0]], np.float32), 20000, axis=1)
    got = run(loaded, SEED, x=chances)
    assert set(np.unique(got)) == {0.0, 1.0}
    means = got.mean(axis=1)
    assert means[0] == 0
    assert means[3] == 1
    assert abs(means[1] - 0.2) < 0.015
    assert abs(means[2] - 0.9) < 0.015
    first, _ = uniforms(SEED, 0, chances.size)
    expected = (first.astype(np.float32) - np.float32(2.0**-24)).reshape(chances.shape) < chances
    np.testing.assert_array_equal(got, expected)


def test_multinomial_draws_classes_with_their_chances(run: Run) -> None:
    graph = GraphBuilder("classes")
    x = graph.input("x", "float32", ["b", "c"])
    graph.output("y", graph.op("Multinomial", x, sample_size=20000), "int32", ["b", "n"])
    model = graph.model()
    lift_random_nodes(model)
    chances = np.array([[0.1, 0.2, 0.7], [0.5, 0.0, 0.5]])
    with np.errstate(divide="ignore"):
        logs = np.log(chances).astype(np.float32)
    got = run(model_bytes(model, "/"), SEED, x=logs)
    assert got.shape == (2, 20000)
    assert got.dtype == np.int32
    for row, expected in zip(got, chances, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 20000, expected, atol=0.015)


def test_a_node_with_a_seed_keeps_to_it(run: Run) -> None:
    loaded = lifted("RandomNormalLike", seed=4.0)
    x = np.zeros((2, 3), np.float32)
    first = run(loaded, 1, x=x)
    np.testing.assert_array_equal(run(loaded, 2, x=x), first)
    assert not np.array_equal(run(lifted("RandomNormalLike", seed=5.0), 1, x=x), first)


def test_a_graph_without_random_nodes_stays_as_it_is() -> None:
    graph = GraphBuilder("plain")
    x = graph.input("x", "float32", ["b"])
    graph.output("y", graph.op("Neg", x), "float32", ["b"])
    model = graph.model()
    assert lift_random_nodes(model) == ()
    assert [value.name for value in model.graph.inputs] == ["x"]


def described(folder: Path, text: str) -> list[RandomNode]:
    """The random nodes of a model in ONNX's text form, read back from its file."""
    onnx_file.ir.save(onnx_file.ir.from_onnx_text(text), folder / "model.onnx")
    return list(read_signature(folder / "model.onnx", folder).random_nodes)


HEAD = '<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>\ng (float[b] x{inputs}) => (float[b] y)\n'


@pytest.mark.parametrize(
    ("opset", "inputs", "body", "op", "fault"),
    [
        (15, "", "y = RandomNormalLike (x)", "RandomNormalLike", ""),
        (15, "", "y = RandomNormalLike <seed: float = 1.0> (x)", "RandomNormalLike", ""),
        (10, "", "y = RandomNormalLike (x)", "RandomNormalLike", "the graph has opset 10"),
        (15, ", int64 random_seed", "y = RandomNormalLike (x)", "RandomNormalLike", "an input 'random_seed'"),
        (15, ", bool t", "r = Constant <value_float: float = 0.5> ()\n y = Dropout (x, r, t)", "Dropout", "training"),
    ],
)  # fmt: skip
def test_random_nodes_are_found_with_what_speaks_against_lifting(
    tmp_path: Path, opset: int, inputs: str, body: str, op: str, fault: str
) -> None:
    (node,) = described(tmp_path, HEAD.format(opset=opset, inputs=inputs) + "{\n " + body + "\n}")
    assert node.op_type == op
    assert fault in node.fault
    assert bool(node.fault) == bool(fault)
    assert node.seeded == ("seed:" in body)


def test_dropout_that_does_not_train_is_no_random_node(tmp_path: Path) -> None:
    quiet = (
        "r = Constant <value: tensor = float {0.5}> ()\n t = Constant <value: tensor = bool {0}> ()\n"
        " y = Dropout (x, r, t)"
    )
    for body in ("y = Dropout (x)", quiet):
        assert described(tmp_path, HEAD.format(opset=15, inputs="") + "{\n " + body + "\n}") == []


def test_a_random_node_in_a_branch_is_named(tmp_path: Path) -> None:
    body = (
        "c = Constant <value: tensor = bool {1}> ()\n"
        " y = If (c) <then_branch = a () => (float[b] p) { p = RandomNormalLike (x) },"
        " else_branch = e () => (float[b] q) { q = Neg (x) }>"
    )
    (node,) = described(tmp_path, HEAD.format(opset=15, inputs="") + "{\n " + body + "\n}")
    assert node.name == "p"
    assert "in a branch or a loop" in node.fault


def test_parts_of_a_lifted_graph_keep_their_files(tmp_path: Path) -> None:
    graph = GraphBuilder("weights")
    x = graph.input("x", "float32", ["b", 64])
    weight = graph.const(np.eye(64, dtype=np.float32), name="weight")
    graph.output("y", graph.op("RandomNormalLike", graph.op("MatMul", x, weight)), "float32", ["b", 64])
    graph.save(tmp_path / "model.onnx", external_data="model.data")
    model = load_model(tmp_path / "model.onnx", tmp_path)
    lift_random_nodes(model)
    assert [value.name for value in model.graph.inputs] == ["x", RANDOM_SEED]

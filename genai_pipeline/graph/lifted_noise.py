"""The load-time rewrite that takes the numbers of random nodes from an input instead of the runtime's generator.

Each node is replaced by operators that compute its numbers from ``random_seed`` (int64, one number for a run), the
node's place among the graph's random nodes, and the index of each element: a counter-based generator, so the same seed
gives the same numbers whatever ran before, and shapes that only a run knows need nothing from outside.

Element i of node k gets the 64 bits R(R(seed + k g) + i), with g the golden ratio in 64 bits and R the counter-based
generator Squares (Widynski 2020) in its form with 64 bits, whose last exclusive or, which older opsets lack, is a sum
here. Bits 40 to 63 and 16 to 39 give two uniform numbers u = (bits + 1) / 2^24 in (0, 1]; a normal one is
sqrt(-2 ln u1) cos(2 pi u2) (Box and Muller 1958).

``noise_like`` computes the same in numpy.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.emitter import Emitter
from genai_pipeline.graph.random_nodes import DRAWS, RANDOM_SEED

if TYPE_CHECKING:
    import onnx_ir as ir

_GOLDEN: Final = 0x9E3779B97F4A7C15
_KEY: Final = 0xC8E4FD154CE32F6D  # any odd number with irregular digits
_HALF: Final = 32  # bits
_BITS: Final = 24
_UNIFORM_SHIFTS: Final = (0, 24)  # to the left, before 40 to the right
_MASK: Final = (1 << 64) - 1
_FLOAT, _INT32 = 1, 6  # onnx.TensorProto


def lift_random_nodes(model: ir.Model) -> tuple[str, ...]:
    """Replace every random node of the main graph in place; returns their names. All of them must be fit for it.

    A graph without any is left as it is. A node with a ``seed`` of its own keeps to that, in every run alike.
    """
    graph = model.graph
    nodes = [node for node in graph if node.op_type in DRAWS and node.domain in ("", "ai.onnx")]
    if not nodes:
        return ()
    ir_ = onnx_file.ir
    seed = ir_.Value(name=RANDOM_SEED, shape=ir_.Shape([]), type=ir_.TensorType(ir_.DataType.INT64))
    graph.inputs.append(seed)
    for place, node in enumerate(nodes):
        emitter = Emitter(graph, f"{RANDOM_SEED}/{place}", before=node)
        _replace(emitter, seed, place, node)
    return tuple(node.name or node.outputs[0].name or node.op_type for node in nodes)


def noise_like(seed: int, place: int, size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The two uniform numbers in (0, 1] of elements [0, size) of the random node at ``place``."""
    with np.errstate(over="ignore"):  # modulo 2^64 is meant
        start = _squares(np.array([(seed + place * _GOLDEN) & _MASK], np.uint64))
        words = _squares(np.arange(size, dtype=np.uint64) + start)
    first, second = ((words << np.uint64(left)) >> np.uint64(64 - _BITS) for left in _UNIFORM_SHIFTS)
    scale = np.float32(2.0**-_BITS)
    return (first.astype(np.float32) + 1) * scale, (second.astype(np.float32) + 1) * scale


def _squares(counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 random bits for each counter."""
    half, key = np.uint64(_HALF), np.uint64(_KEY)
    y = x = counters * key
    z = y + key
    for added in (y, z, y):
        x = x * x + added
        x = (x >> half) + (x << half)
    bits = x * x + z
    x = (bits >> half) + (bits << half)
    result: NDArray[np.uint64] = bits + ((x * x + y) >> half)
    return result


def _replace(emit: Emitter, seed: ir.Value, place: int, node: ir.Node) -> None:
    own = node.attributes.get("seed")
    base = seed if own is None else emit.constant(_bits(own.as_float()), "int64")
    result = _MAKERS[node.op_type](emit, _Draw(emit, base, place), node)
    ir_ = onnx_file.ir
    old = node.outputs[0]
    name, kind, shape = old.name, old.type, old.shape
    ir_.convenience.replace_all_uses_with(old, result, replace_graph_outputs=True)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    result.name, result.type, result.shape = name, kind, shape


def _bits(number: float) -> int:
    return int(struct.unpack("<i", struct.pack("<f", number))[0])


class _Draw:
    """Uniform numbers of one node."""

    def __init__(self, emit: Emitter, seed: ir.Value, place: int) -> None:
        self._emit = emit
        word = emit.op("Add", emit.cast(seed, "uint64"), emit.constant(place * _GOLDEN & _MASK, "uint64"))
        self._start = self._squares(word)

    def uniforms(self, size: ir.Value) -> list[ir.Value]:
        """Two vectors of ``size`` (an int64 scalar) numbers in (0, 1], float32."""
        emit = self._emit
        indices = emit.op("Range", emit.constant(0, "int64"), size, emit.constant(1, "int64"))
        words = self._squares(emit.op("Add", emit.cast(indices, "uint64"), self._start))
        return [self._uniform(words, left) for left in _UNIFORM_SHIFTS]

    def _uniform(self, words: ir.Value, left: int) -> ir.Value:
        emit = self._emit
        high = self._shift(words, left, "LEFT") if left else words
        bits = emit.cast(self._shift(high, 64 - _BITS, "RIGHT"), "float32")
        return emit.op("Mul", emit.op("Add", bits, emit.constant(1, "float32")), emit.constant(2.0**-_BITS, "float32"))

    def _squares(self, counters: ir.Value) -> ir.Value:
        """64 random bits for each counter, as the function of that name computes them."""
        emit, key = self._emit, self._emit.constant(_KEY, "uint64")
        y = x = emit.op("Mul", counters, key)
        z = emit.op("Add", y, key)
        for added in (y, z, y):
            x = self._halves_swapped(self._square(x, added))
        bits = self._square(x, z)
        last = self._square(self._halves_swapped(bits), y)
        return emit.op("Add", bits, self._shift(last, _HALF, "RIGHT"))

    def _square(self, value: ir.Value, added: ir.Value) -> ir.Value:
        return self._emit.op("Add", self._emit.op("Mul", value, value), added)

    def _halves_swapped(self, value: ir.Value) -> ir.Value:
        return self._emit.op("Add", self._shift(value, _HALF, "RIGHT"), self._shift(value, _HALF, "LEFT"))

    def _shift(self, word: ir.Value, by: int, direction: str) -> ir.Value:
        return self._emit.op("BitShift", word, self._emit.constant(by, "uint64"), direction=direction)


def _normal(emit: Emitter, draw: _Draw, size: ir.Value) -> ir.Value:
    first, second = draw.uniforms(size)
    radius = emit.op("Sqrt", emit.op("Mul", emit.op("Log", first), emit.constant(-2, "float32")))
    angle = emit.op("Mul", second, emit.constant(2 * math.pi, "float32"))
    return emit.op("Mul", radius, emit.op("Cos", angle))


def _shape_of(emit: Emitter, node: ir.Node) -> tuple[ir.Value, ir.Value]:
    """The shape a node's output has, int64 [rank], and its number of elements."""
    if "Like" in node.op_type or node.op_type == "Bernoulli":
        like = node.inputs[0]
        assert like is not None
        return emit.op("Shape", like), emit.op("Size", like)
    shape = node.attributes["shape"].as_ints()
    return emit.constant(list(shape), "int64"), emit.constant(math.prod(shape), "int64")


def _filled(emit: Emitter, node: ir.Node, numbers: ir.Value, scale: float, offset: float) -> ir.Value:
    """The numbers scaled and shifted, in the shape and type that the node gives."""
    shape, _ = _shape_of(emit, node)
    value = emit.op("Add", emit.op("Mul", numbers, emit.constant(scale, "float32")), emit.constant(offset, "float32"))
    return emit.op("Cast", emit.op("Reshape", value, shape), to=_target(node, _FLOAT))


def _target(node: ir.Node, default: int) -> int:
    """The element type of a node's output: as declared, else of the value it is like."""
    declared = node.attributes.get("dtype")
    if declared is not None:
        return declared.as_int()
    known = node.outputs[0].dtype or (node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None)
    return default if known is None else int(known)


def _make_normal(emit: Emitter, draw: _Draw, node: ir.Node) -> ir.Value:
    numbers = _normal(emit, draw, _shape_of(emit, node)[1])
    return _filled(emit, node, numbers, _float(node, "scale", 1.0), _float(node, "mean", 0.0))


def _make_uniform(emit: Emitter, draw: _Draw, node: ir.Node) -> ir.Value:
    low, high = _float(node, "low", 0.0), _float(node, "high", 1.0)
    numbers = emit.op("Sub", draw.uniforms(_shape_of(emit, node)[1])[0], emit.constant(2.0**-_BITS, "float32"))
    return _filled(emit, node, numbers, high - low, low)


def _make_bernoulli(emit: Emitter, draw: _Draw, node: ir.Node) -> ir.Value:
    """1 with the probability that the input has: where a number in [0, 1) is below it."""
    chance = node.inputs[0]
    assert chance is not None
    shape, size = _shape_of(emit, node)
    numbers = emit.op("Sub", draw.uniforms(size)[0], emit.constant(2.0**-_BITS, "float32"))
    drawn = emit.op("Less", emit.op("Reshape", numbers, shape), emit.cast(chance, "float32"))
    return emit.op("Cast", drawn, to=_target(node, _FLOAT))


def _make_multinomial(emit: Emitter, draw: _Draw, node: ir.Node) -> ir.Value:
    """Samples [b, n] from rows of logarithms of chances [b, c]: the largest of each plus noise of Gumbel's (1954)."""
    chances = node.inputs[0]
    assert chances is not None
    count = node.attributes["sample_size"].as_int() if "sample_size" in node.attributes else 1
    wide = emit.op("Reshape", emit.cast(chances, "float32"), emit.ints([0, 1, -1]))
    full = emit.op("Expand", wide, emit.ints([1, count, 1]))
    below_one = emit.op("Min", draw.uniforms(emit.op("Size", full))[0], emit.constant(1 - 2.0**-_BITS, "float32"))
    gumbel = emit.op("Neg", emit.op("Log", emit.op("Neg", emit.op("Log", below_one))))
    noisy = emit.op("Add", full, emit.op("Reshape", gumbel, emit.op("Shape", full)))
    chosen = emit.op("ArgMax", noisy, axis=2, keepdims=0)
    return emit.op("Cast", chosen, to=node.attributes["dtype"].as_int() if "dtype" in node.attributes else _INT32)


def _float(node: ir.Node, name: str, default: float) -> float:
    found = node.attributes.get(name)
    return default if found is None else found.as_float()


_MAKERS: Final = {
    "RandomNormal": _make_normal,
    "RandomNormalLike": _make_normal,
    "RandomUniform": _make_uniform,
    "RandomUniformLike": _make_uniform,
    "Bernoulli": _make_bernoulli,
    "Multinomial": _make_multinomial,
}

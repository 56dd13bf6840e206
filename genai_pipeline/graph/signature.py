"""What a graph's ports look like, read from its file without weights and without a runtime session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from genai_pipeline.graph.random_nodes import RandomNode

Dim = int | str  # a fixed size, or the name of a symbolic one ("" when it has none)


def size_name(written: str) -> str:
    """The name of a symbolic size as a file has it; "" for one that says nothing, such as "?"."""
    return written if any(map(str.isalnum, written)) else ""


@dataclass(frozen=True, slots=True)
class Port:
    """One graph input or output; ``dtype`` is a numpy-style name ("float32", "bfloat16", "int64", ...)."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None  # None: rank unknown

    @property
    def batched(self) -> bool:
        """Whether axis 0 is the batch axis: the graph leaves it symbolic."""
        return bool(self.shape) and isinstance(self.shape[0], str)  # type: ignore[index]


@dataclass(frozen=True, slots=True)
class GraphSignature:
    """Inputs (initialisers excluded) and outputs of one graph, and what its file says about itself."""

    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    opset: Mapping[str, int]
    metadata: Mapping[str, str]
    # Past port -> attention window of the node that reads it; None: it reads the whole past; absent: not known.
    windows: Mapping[str, int | None] = field(default_factory=dict)
    random_nodes: tuple[RandomNode, ...] = ()
    # Output -> the input that it is with more behind it, and the operation; of others it is not known.
    grown: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def joined(first: GraphSignature, later: GraphSignature) -> GraphSignature:
    """The ports of both graphs of a component, for first and for later runs; one that both have is the first's."""
    return GraphSignature(
        inputs={**later.inputs, **first.inputs},
        outputs={**later.outputs, **first.outputs},
        opset=later.opset,
        metadata=later.metadata,
        windows={**later.windows, **first.windows},
        random_nodes=(*first.random_nodes, *later.random_nodes),
        grown={**later.grown, **first.grown},
    )

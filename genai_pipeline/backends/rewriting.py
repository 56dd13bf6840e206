"""What is changed in a graph as it is loaded: random numbers become an input, only asked-for logits are made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genai_pipeline.backends.protocol import LoadRequest
from genai_pipeline.errors import GraphLoadError
from genai_pipeline.graph.external_data import load_model
from genai_pipeline.graph.lifted_noise import lift_random_nodes
from genai_pipeline.graph.logit_rows import LOGIT_ROWS, rewrite_logit_rows
from genai_pipeline.graph.signature import GraphSignature

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A graph as it is to be loaded: ``model`` None is the file as it lies there.

    ``logits`` is the output that takes ``logit_rows`` now, ``notes`` what is worth saying.
    """

    model: ir.Model | None
    logits: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def changed_ports(self) -> frozenset[str]:
        """Ports that the file has not, or has in another shape."""
        return frozenset() if self.logits is None else frozenset({self.logits, LOGIT_ROWS})


def rewrite(request: LoadRequest, signature: GraphSignature) -> Rewritten:
    """The graph of a request, rewritten where that is needed. Raises GraphLoadError, GraphFileError."""
    path, root = Path(request.path), Path(request.root)
    for node in signature.random_nodes:
        if node.fault:
            message = f"component '{request.component}': node {node} draws random numbers that no seed can repeat"
            raise GraphLoadError(f"{message}: {node.fault}")
    if request.logits is None and not signature.random_nodes:
        return Rewritten(None)
    model = load_model(path, root)
    lifted = lift_random_nodes(model)
    notes = () if not lifted else (f"'{request.component}' draws random numbers that follow from the request's seed",)
    if request.logits is None:
        return Rewritten(model, notes=notes)
    result = rewrite_logit_rows(model, request.logits)
    if not result.rewritten:
        note = f"'{request.component}' computes the logits of every token of a run: {result.reason}"
        return Rewritten(model if lifted else None, notes=(*notes, note))
    return Rewritten(model, request.logits, notes)

"""An operation stage outside decode loops: its inputs and parameters for one call, and its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from genai_pipeline.engine.scope_run import Call, Values
from genai_pipeline.errors import ExpressionError, RequestError
from genai_pipeline.graph.plan import StagePlan
from genai_pipeline.metadata.call_parameters import call_values
from genai_pipeline.metadata.expressions import evaluate
from genai_pipeline.metadata.model import Binding
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.registry import operation
from genai_pipeline.preprocess.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class OpCall:
    """One call of an operation, ready to run on any thread."""

    path: str
    call: Call
    inputs: Mapping[str, Any]
    params: Mapping[str, Any]
    context: OpContext


class OpStage:
    """Prepares calls on the thread that walks; ``run`` is for any thread. ``offload``: it belongs on a worker."""

    def __init__(self, path: str, stage: StagePlan, tokenizers: Mapping[str, Tokenizer]) -> None:
        assert stage.spec.op is not None
        self._path = path
        self._stage = stage
        self._tokenizers = tokenizers
        self._operation = operation(stage.spec.op)
        self.offload = self._operation.spec.runs == "offload"

    def prepare(self, call: Call) -> OpCall:
        """What a call gives the operation. Raises RequestError for parameters that are wrong once they are known."""
        inputs = {port: self._input(bound, call.values) for port, bound in self._stage.spec.inputs.items()}
        declared = self._operation.spec.parameters
        try:
            params = call_values(self._stage.spec.params, declared, lambda name: self._read(name, call.values))
        except ExpressionError as error:
            raise RequestError(f"stage '{self._path}': {error.message}", hint=error.hint) from error
        context = OpContext(self._tokenizers, call.request.request.seed, self._path, call.item)
        return OpCall(self._path, call, inputs, params, context)

    def run(self, prepared: OpCall) -> dict[str, Any]:
        """The outputs that are read, by value key. Raises RequestError for values the operation does not take."""
        given = self._operation.run(prepared.inputs, prepared.params, prepared.context)
        return {key: given[port] for port, key in self._stage.outputs.items()}

    def _input(self, bound: Binding | tuple[Binding, ...], values: Values) -> Any:
        if isinstance(bound, tuple):
            return [self._value(binding, values) for binding in bound]
        return self._value(bound, values)

    def _value(self, binding: Binding, values: Values) -> Any:
        return evaluate(binding.expr, lambda name: self._read(name, values))

    def _read(self, name: str, values: Values) -> Any:
        key = self._stage.reads.get(name)
        return values[key if key is not None else name]

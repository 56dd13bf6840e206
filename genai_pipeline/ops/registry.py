"""From an operation's name to what runs it; the module that has it is imported at the first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from genai_pipeline.errors import GenaiError, OperationFailedError, OperationUnusableError, RequestError
from genai_pipeline.metadata.operations import BUILT_IN, SETTLED, OperationInput, OperationSpec, load_added
from genai_pipeline.ops.context import OpContext

Function = Callable[[Mapping[str, Any], Mapping[str, Any], OpContext], Mapping[str, Any]]
_MODULES: Final[Mapping[str, str]] = {
    "arrays": "concat stack split slice take reshape transpose pad sum affine fill repeat_rows last_rows coalesce",
    "vectors": "argmax top_k softmax sigmoid pool normalize similarity truncate sample",
    "prompt_rows": "splice position_mask mask attention_mask grid_positions",
    "text": "tokenize detokenize render join",
    "text_pieces": "split_text spans",
    "speech": "ctc_decode speech_segments",
    "transcripts": "transcript_times stitch",
    "alignment": "align_words",
    "vision": "boxes_from_map detections",
    "warping": "crop_quads rotate_if restore_size",
    "sounds": "log_mel",
    "numbers": "noise gaussian",
    "writers": "png jpeg wav srt vtt json npy",
    "speech_text": "spell_out words phonemes map_ids",
}
_HOME: Final = {name: module for module, names in _MODULES.items() for name in names.split()}


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: its declaration, and a pure function of (inputs, parameters, context) that gives its outputs.

    The function gets every declared input, None for an optional one that is absent, with the rank that it declared.
    """

    spec: OperationSpec
    function: Function

    def run(self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: OpContext) -> Mapping[str, Any]:
        """The outputs by port; ``inputs`` as bound, ``params`` with every value (``call_values``).

        Raises RequestError for a value that the operation does not take, OperationFailedError when it fails.
        """
        ready = {port.name: _prepared(inputs.get(port.name), port, context) for port in self.spec.inputs}
        try:
            given = self.function(ready, params, context)
            return {port.name: given[port.name] for port in self.spec.outputs}
        except GenaiError:
            raise
        except (Exception, SystemExit) as error:  # of one request: the engine goes on, whoever's code is at fault
            text = (
                f"the operation '{self.spec.name}' of stage '{context.stage}' failed: {type(error).__name__}: {error}"
            )
            raise OperationFailedError(text) from error


@cache
def operation(name: str) -> Operation:
    """The operation of that name. Raises KeyError for none, OperationUnusableError for an added one that is broken."""
    if name in SETTLED:
        module = importlib.import_module(f"genai_pipeline.ops.{_HOME[name]}")
        function = getattr(module, f"{name}_", None)  # so called where Python has the name already: sum_, json_
        return Operation(BUILT_IN[name], function or getattr(module, name))
    found = load_added(name)
    if not isinstance(found, Operation):
        raise OperationUnusableError(f"the operation '{name}' is no Operation", hint="it is Operation(spec, function)")
    return found


def _prepared(value: Any, port: OperationInput, context: OpContext) -> Any:
    """A value as its port wants it."""
    if value is None:
        if not port.optional:
            raise RequestError(f"stage '{context.stage}' misses its input '{port.name}'")
        return None
    if port.many:
        items = value if isinstance(value, list | tuple) else [value]
        return [_one(item, port, context) for item in items if item is not None]
    return _one(value, port, context)


def _one(value: Any, port: OperationInput, context: OpContext) -> Any:
    if port.kind == "tensor":
        return _tensor(value, port, context)
    if port.kind == "text" and not isinstance(value, str):
        raise RequestError(f"'{port.name}' of stage '{context.stage}' takes text, not {type(value).__name__}")
    return value


def _tensor(value: Any, port: OperationInput, context: OpContext) -> Any:
    array = value if isinstance(value, np.ndarray) else _array(value, port, context)
    if array.dtype.kind not in "fiub" or (port.numbers == "integer" and array.dtype.kind not in "iub"):
        wanted = "whole numbers" if port.numbers == "integer" else "numbers"
        raise RequestError(f"'{port.name}' of stage '{context.stage}' takes {wanted}, not {array.dtype}")
    if port.numbers == "float" and array.dtype.kind != "f":
        array = array.astype(np.float32)
    if port.rank is None or array.ndim == port.rank:
        return array
    if array.ndim == port.rank - 1:
        return array[np.newaxis]
    raise RequestError(f"'{port.name}' of stage '{context.stage}' has rank {port.rank}, not {array.ndim}")


def _array(value: Any, port: OperationInput, context: OpContext) -> Any:
    """Numbers as int64 or float32, as graphs have them; no numbers are of the type that is wanted."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        hint = "run the stage with for_each"
        text = f"'{port.name}' of stage '{context.stage}' takes one array, not a list of several shapes"
        raise RequestError(text, hint=hint) from error
    if array.size == 0:
        return array.astype(np.int64 if port.numbers == "integer" else np.float32)
    return array.astype(np.float32) if array.dtype == np.float64 else array

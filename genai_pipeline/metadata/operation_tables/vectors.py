"""Operations on vectors: choices, scores and embeddings."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

_LAST_AXIS: Final = CallParameter("integer", "the axis; negative ones count from the last", -1)
_NUMBERS: Final = OperationInput("value", "any array")

SPECS: Final = table(
    Op(
        "argmax",
        "The index of the largest number along an axis; of equal ones, the first.",
        (_NUMBERS,),
        (OperationOutput(RESULT, "the indices, the axis gone", dtype="int64"),),
        {"axis": _LAST_AXIS},
    ),
    Op(
        "pool",
        "One vector of a sequence of vectors.",
        (
            OperationInput("states", "vectors [1, s, d]", rank=3, numbers="float"),
            OperationInput("mask", "1 for positions that count, 0 for padding [1, s]; default: all", 2, optional=True),
        ),
        (OperationOutput(RESULT, "[1, d]; zeros where no position counts", like="states", rank=2),),
        {
            "kind": CallParameter(
                "choice",
                "``mean`` or ``max`` of the positions that count, the first of them (``cls``), the last (``last``)",
                "mean",
                ("mean", "max", "cls", "last"),
            )
        },
    ),
    Op(
        "normalize",
        "Scales vectors to length 1.",
        (_NUMBERS,),
        (OperationOutput(RESULT, "an array of the same shape", like="value"),),
        {
            "order": CallParameter("number", "p of the norm, the p-th root of the sum of |x|^p", 2, minimum=1),
            "axis": _LAST_AXIS,
            "epsilon": CallParameter("number", "the smallest norm that is divided by", 1e-12, minimum=0),
        },
    ),
)

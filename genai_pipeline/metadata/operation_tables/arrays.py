"""Operations on the shapes of arrays."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

_VALUE: Final = OperationInput("value", "any array")
_AXIS: Final = CallParameter("integer", "the axis; negative ones count from the last")

SPECS: Final = table(
    Op(
        "concat",
        "Joins arrays along an axis; their other axes are equal.",
        (OperationInput("values", "two or more arrays of one rank, or a list of them", many=True),),
        (OperationOutput(RESULT, "the arrays one behind the other", like="values"),),
        {"axis": _AXIS},
    ),
    Op(
        "take",
        "Rows of a table: picks along an axis by index, e.g. embeddings of tokens.",
        (
            OperationInput("value", "the table"),
            OperationInput("index", "indices of any shape; negative ones count from the end", numbers="integer"),
        ),
        (OperationOutput(RESULT, "the axis replaced by the axes of ``index``", like="value"),),
        {"axis": CallParameter("integer", "the axis of the table that is indexed", 0)},
    ),
    Op(
        "affine",
        "Scales and shifts numbers: value times scale plus offset.",
        (_VALUE,),
        (OperationOutput(RESULT, "an array of the same shape; integers become float32", like="value"),),
        {
            "scale": CallParameter("number", "what every number is multiplied by", 1.0),
            "offset": CallParameter("number", "what is added then", 0.0),
        },
    ),
)

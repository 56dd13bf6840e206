"""Operations that make numbers where there were none."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

SPECS: Final = table(
    Op(
        "fill",
        "An array of one number, e.g. the state that a loop starts from.",
        (),
        (OperationOutput(RESULT, "the array, float32; the batch axis is one of its axes", dtype="float32"),),
        {
            "shape": CallParameter("integers", "the size of each axis", minimum=0),
            "value": CallParameter("number", "what every element is", 0.0),
        },
    ),
    Op(
        "pad",
        "Lengthens an axis with one number, to a least length and then to a multiple of a length.",
        (OperationInput("value", "any array"),),
        (OperationOutput(RESULT, "the array, as long as it was or longer", like="value"),),
        {
            "axis": CallParameter("integer", "the axis; negative ones count from the last", -1),
            "least": CallParameter("integer", "the least length, in elements", 0, minimum=0),
            "multiple": CallParameter("integer", "what the length is a multiple of, in elements", 1, minimum=1),
            "side": CallParameter(
                "choice", "where elements are added: ``before`` or ``after``", "after", ("before", "after")
            ),
            "value": CallParameter("number", "what the added elements are", 0.0),
        },
    ),
)

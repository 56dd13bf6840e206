"""Operations on the shapes of arrays."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

_VALUE: Final = OperationInput("value", "any array")
_VALUES: Final = OperationInput("values", "arrays, or a list of them", many=True)
_AXIS: Final = CallParameter("integer", "the axis; negative ones count from the last")
_DTYPES: Final = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")

SPECS: Final = table(
    Op(
        "concat",
        "Joins arrays along an axis; their other axes are equal.",
        (_VALUES,),
        (OperationOutput(RESULT, "the arrays one behind the other", like="values"),),
        {"axis": _AXIS},
    ),
    Op(
        "stack",
        "Lays arrays of one shape side by side along a new axis.",
        (_VALUES,),
        (OperationOutput(RESULT, "an array with one axis more", dtype_like="values"),),
        {"axis": CallParameter("integer", "where the new axis stands in the result", 0)},
    ),
    Op(
        "split",
        "Cuts an array along an axis into a list of arrays.",
        (_VALUE,),
        (OperationOutput(RESULT, "the pieces in order", "list"),),
        {
            "axis": _AXIS,
            "sizes": CallParameter("integers", "size of each piece; their sum is the axis", None, minimum=0),
            "parts": CallParameter("integer", "number of pieces of one size, in place of ``sizes``", None, minimum=1),
        },
    ),
    Op(
        "slice",
        "The half-open range [start, stop) of an axis. A range that is not inside the axis is refused.",
        (_VALUE,),
        (OperationOutput(RESULT, "the range, with the axis kept", like="value"),),
        {
            "axis": _AXIS,
            "start": CallParameter("integer", "first index; negative ones count from the end", 0),
            "stop": CallParameter("integer", "index after the last; default: the end of the axis", None),
            "step": CallParameter("integer", "every how many-th index", 1, minimum=1),
        },
    ),
    Op(
        "take",
        "Rows of a table: picks along an axis by index, e.g. embeddings of tokens.",
        (
            OperationInput("value", "the table"),
            OperationInput("index", "indices of any shape; negative ones count from the end", numbers="integer"),
        ),
        (OperationOutput(RESULT, "the table with the axis replaced by the axes of ``index``", dtype_like="value"),),
        {"axis": CallParameter("integer", "the axis of the table that is indexed", 0)},
    ),
    Op(
        "reshape",
        "The same numbers in the same order under another shape.",
        (_VALUE,),
        (OperationOutput(RESULT, "the array of that shape", dtype_like="value"),),
        {"shape": CallParameter("integers", "size of each axis; one of them may be -1: what is left", minimum=-1)},
    ),
    Op(
        "transpose",
        "Reorders the axes.",
        (_VALUE,),
        (OperationOutput(RESULT, "the array with axis i taken from axis order[i]", like="value"),),
        {"order": CallParameter("integers", "every axis once", minimum=0)},
    ),
    Op(
        "pad",
        "Adds a border of one number to an axis.",
        (_VALUE,),
        (OperationOutput(RESULT, "the longer array", like="value"),),
        {
            "axis": _AXIS,
            "before": CallParameter("integer", "how many to add in front", 0, minimum=0),
            "after": CallParameter("integer", "how many to add behind", 0, minimum=0),
            "to": CallParameter("integer", "size to fill up to, behind; a longer axis is refused", None, minimum=0),
            "value": CallParameter("number", "the number to add", 0),
        },
    ),
    Op(
        "sum",
        "Adds arrays up: with ``axis`` what they hold along it, joined there; without, number by number.",
        (_VALUES,),
        (OperationOutput(RESULT, "the sum; with ``axis``, that axis has size 1", like="values"),),
        {"axis": CallParameter("integer", "the axis to add along; default: add the arrays to each other", None)},
    ),
    Op(
        "affine",
        "Scales and shifts numbers: value times scale plus offset.",
        (_VALUE,),
        (OperationOutput(RESULT, "an array of the same shape; integers become float32", rank_like="value"),),
        {
            "scale": CallParameter("number", "what every number is multiplied by", 1.0),
            "offset": CallParameter("number", "what is added then", 0.0),
        },
    ),
    Op(
        "fill",
        "An array of one number.",
        (),
        (OperationOutput(RESULT, "the array"),),
        {
            "shape": CallParameter("integers", "size of each axis", minimum=0),
            "value": CallParameter("number", "the number", 0),
            "dtype": CallParameter("choice", "type of the elements", "float32", _DTYPES),
        },
    ),
    Op(
        "repeat_rows",
        "Repeats each row of an axis as often as its count says, e.g. phonemes by their durations.",
        (_VALUE, OperationInput("counts", "one number for all rows, or one for each", numbers="integer")),
        (OperationOutput(RESULT, "the rows in order, each ``count`` times", like="value"),),
        {"axis": CallParameter("integer", "the axis of the rows", 1)},
    ),
    Op(
        "last_rows",
        "The last rows of an axis; fewer than asked for are refused.",
        (
            _VALUE,
            OperationInput("length", "rows that count, the others are padding behind", None, True, numbers="integer"),
        ),
        (OperationOutput(RESULT, "the last ``count`` of those rows", like="value"),),
        {
            "count": CallParameter("integer", "how many rows", 1, minimum=1),
            "axis": CallParameter("integer", "the axis of the rows", 1),
        },
    ),
    Op(
        "coalesce",
        "The first of several values that is there, e.g. what one of two branches made.",
        (OperationInput("values", "values of any kind, some of them absent", None, True, many=True, kind="any"),),
        (OperationOutput(RESULT, "that value as it is; absent when all are", "any"),),
    ),
)

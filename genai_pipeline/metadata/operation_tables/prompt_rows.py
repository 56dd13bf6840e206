"""Operations on masks, positions and the embedding rows of a prompt."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

_AT: Final = OperationInput(
    "at",
    "positions in the prompt from 0 on, ascending [k]: one array or one for each item",
    optional=True,
    many=True,
    numbers="integer",
)
_KINDS: Final = ("int64", "bool", "float32")

SPECS: Final = table(
    Op(
        "splice",
        "Puts feature rows in place of embedding rows at positions of the prompt, in order, in any chunk of it. In a "
        "decode body positions are those of the whole prompt; elsewhere ``into`` is the whole prompt.",
        (
            OperationInput("into", "embeddings of the new tokens [1, n, d]", rank=3),
            OperationInput(
                "features", "feature rows [1, k, d] or [k, d]: one array or one for each item", optional=True, many=True
            ),
            _AT,
        ),
        (OperationOutput(RESULT, "``into`` with those rows replaced; ``into`` itself where none is", like="into"),),
    ),
    Op(
        "position_mask",
        "Marks the new tokens that stand at given positions, e.g. those of images.",
        (_AT,),
        (OperationOutput(RESULT, "1 at the positions, 0 elsewhere [1, n]", rank=2),),
        {
            "length": CallParameter("integer", "n outside of decode loops: tokens of the prompt", None, minimum=0),
            "dtype": CallParameter("choice", "type of the elements", "int64", _KINDS),
        },
        reads_range=True,
    ),
    Op(
        "mask",
        "Marks the first positions of each row: 1 for what is there, 0 for padding behind.",
        (
            OperationInput(
                "length", "how many are there, one number or one for each row [b]", rank=1, numbers="integer"
            ),
        ),
        (OperationOutput(RESULT, "[b, size]", rank=2),),
        {
            "size": CallParameter("integer", "positions in all; default: the largest length", None, minimum=0),
            "dtype": CallParameter("choice", "type of the elements", "int64", _KINDS),
        },
    ),
    Op(
        "attention_mask",
        "What is added to attention scores: 0 where a position may be looked at, a very low number where not.",
        (OperationInput("mask", "1 for positions in use, 0 for padding [b, t]", rank=2),),
        (OperationOutput(RESULT, "[b, 1, q, t]", dtype="float32", rank=4),),
        {
            "causal": CallParameter("boolean", "whether positions see only those up to themselves", True),
            "queries": CallParameter(
                "integer", "q: how many of the last positions look; default: all", None, minimum=0
            ),
            "window": CallParameter("integer", "how many positions back each sees, itself included", None, minimum=1),
            "low": CallParameter("number", "the very low number", -3.4028234663852886e38),
        },
    ),
    Op(
        "grid_positions",
        "Positions in three axes (time, row, column): text counts up on all three at once, the features of a picture "
        "lie in their grid, and what follows goes on after the largest.",
        (
            OperationInput("length", "tokens of the prompt", rank=0, numbers="integer"),
            _AT,
            OperationInput(
                "grids",
                "time, rows and columns of each item's patches [3], or [2] for pictures",
                optional=True,
                many=True,
                numbers="integer",
            ),
        ),
        (
            OperationOutput("positions", "[3, length]", dtype="int64", rank=2),
            OperationOutput("offset", "what later positions add to their index", dtype="int64", rank=0),
        ),
        {"merge": CallParameter("integer", "patches per side that make one feature", 1, minimum=1)},
    ),
)

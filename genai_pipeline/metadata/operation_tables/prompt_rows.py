"""Operations on masks, positions and the embedding rows of a prompt."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

SPECS: Final = table(
    Op(
        "splice",
        "Puts feature rows in place of embedding rows at positions of the prompt, in order, in any chunk of it.",
        (
            OperationInput("into", "embeddings of the row's new tokens [1, n, d]", rank=3),
            OperationInput(
                "features", "feature rows [1, k, d] or [k, d], one array or one for each item", optional=True, many=True
            ),
            OperationInput(
                "at",
                "positions in the prompt, counted from 0, as many as feature rows in all, in ascending order [k]",
                optional=True,
                many=True,
                numbers="integer",
            ),
        ),
        (OperationOutput(RESULT, "``into`` with those rows replaced", like="into"),),
    ),
)

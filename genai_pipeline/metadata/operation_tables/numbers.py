"""Operations that draw random numbers."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

SPECS: Final = table(
    Op(
        "noise",
        "Random numbers of the request's seed, others for each stage, item and step.",
        (),
        (OperationOutput(RESULT, "float32 numbers of that shape", dtype="float32"),),
        {
            "shape": CallParameter("integers", "size of each axis", minimum=0),
            "kind": CallParameter(
                "choice",
                "``normal`` with mean 0 and deviation 1, or ``uniform`` in [0, 1)",
                "normal",
                ("normal", "uniform"),
            ),
            "scale": CallParameter("number", "what the numbers are multiplied by", 1.0),
        },
        deterministic=False,
        in_body=False,
    ),
    Op(
        "gaussian",
        "Draws from a normal distribution around each number, e.g. what an encoder gives as mean and spread.",
        (
            OperationInput("mean", "an array", numbers="float"),
            OperationInput("spread", "an array of the same shape; its meaning is ``spread_is``", numbers="float"),
        ),
        (OperationOutput(RESULT, "mean + deviation * noise", like="mean"),),
        {
            "spread_is": CallParameter(
                "choice",
                "what the spread is",
                "log_variance",
                ("deviation", "variance", "log_deviation", "log_variance"),
            ),
            "scale": CallParameter("number", "what deviations are multiplied by; 0 gives the mean", 1.0, minimum=0),
        },
        deterministic=False,
        in_body=False,
    ),
)

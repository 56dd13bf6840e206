"""Operations on sounds that a pipeline has cut or made."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.mel_parameters import MEL_PARAMETERS
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

SPECS: Final = table(
    Op(
        "log_mel",
        "Logarithms of mel bands of a sound, as the step of that name of a program computes them.",
        (OperationInput("samples", "one channel [1, n]", rank=2, numbers="float"),),
        (OperationOutput(RESULT, "features [1, mels, frames] in the layout asked for", dtype="float32", rank=3),),
        {"rate": CallParameter("integer", "samples per second", 16000, minimum=1), **MEL_PARAMETERS},
        runs="offload",
        in_body=False,
    ),
)

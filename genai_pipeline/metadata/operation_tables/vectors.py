"""Operations on vectors: choices, scores and embeddings."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

_LAST_AXIS: Final = CallParameter("integer", "the axis; negative ones count from the last", -1)
_NUMBERS: Final = OperationInput("value", "any array")
_SCORES: Final = OperationInput("value", "scores [1, n] (or of any shape, without labels)")
LABELS: Final = OperationInput(
    "labels", "a list of texts, or one text with a label per line", None, True, many=True, kind="any"
)
_LABELLED: Final = (
    OperationOutput(RESULT, "probabilities of the same shape, float32 or wider", rank_like="value"),
    OperationOutput("items", "with ``labels``: ``{label, score}`` for each, the best first", "list"),
)

SPECS: Final = table(
    Op(
        "argmax",
        "The index of the largest number along an axis; of equal ones, the first.",
        (_NUMBERS,),
        (OperationOutput(RESULT, "the indices, the axis gone", dtype="int64"),),
        {"axis": _LAST_AXIS},
    ),
    Op(
        "top_k",
        "The largest numbers of the last axis, from the largest down; of equal ones, the first comes first.",
        (_NUMBERS,),
        (
            OperationOutput("values", "the numbers [..., k]", like="value"),
            OperationOutput("indices", "where they stand [..., k]", dtype="int64", rank_like="value"),
        ),
        {"k": CallParameter("integer", "how many; more than there are is refused", minimum=1)},
    ),
    Op(
        "softmax",
        "Probabilities of scores: exp(x / temperature), divided by their sum along the axis.",
        (_SCORES, LABELS),
        _LABELLED,
        {
            "temperature": CallParameter("number", "what scores are divided by", 1.0, minimum=1e-6),
            "axis": _LAST_AXIS,
        },
    ),
    Op(
        "sigmoid",
        "The probability of each score for itself: 1 / (1 + exp(-x)).",
        (_SCORES, LABELS),
        _LABELLED,
    ),
    Op(
        "pool",
        "One vector of a sequence of vectors.",
        (
            OperationInput("states", "vectors [1, s, d]", rank=3, numbers="float"),
            OperationInput("mask", "1 for positions that count, 0 for padding [1, s]; default: all", 2, optional=True),
        ),
        (OperationOutput(RESULT, "[1, d]; zeros where no position counts", dtype_like="states", rank=2),),
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
        (OperationOutput(RESULT, "an array of the same shape; integers become float32", rank_like="value"),),
        {
            "order": CallParameter("number", "p of the norm, the p-th root of the sum of |x|^p", 2, minimum=1),
            "axis": _LAST_AXIS,
            "epsilon": CallParameter("number", "the smallest norm that is divided by", 1e-12, minimum=0),
        },
    ),
    Op(
        "similarity",
        "How alike the vectors of two sets are, each with each.",
        (
            OperationInput("a", "vectors [n, d], or one [d]", rank=2),
            OperationInput("b", "vectors [m, d], or one [d]", rank=2),
        ),
        (OperationOutput(RESULT, "a number per pair [n, m]", dtype="float32", rank=2),),
        {
            "kind": CallParameter(
                "choice",
                "``cosine`` of the angle, ``dot`` product, or Euclidean ``distance``",
                "cosine",
                ("cosine", "dot", "distance"),
            ),
            "scale": CallParameter("number", "what the numbers are multiplied by", 1.0),
        },
    ),
    Op(
        "truncate",
        "The first numbers of each vector: embeddings that were trained to be cut. Normalize afterwards.",
        (_NUMBERS,),
        (OperationOutput(RESULT, "vectors [..., size]", like="value"),),
        {"size": CallParameter("integer", "how many numbers to keep; more than there are is refused", minimum=1)},
    ),
    Op(
        "sample",
        "Draws one index per row of logits, with random numbers of the request's seed, this stage and step.",
        (OperationInput("logits", "logits [1, v], or [1, n, v], of which the last row counts"),),
        (OperationOutput(RESULT, "the indices [1, 1]", dtype="int64", rank=2),),
        {
            "temperature": CallParameter("number", "what logits are divided by; 0 takes the largest", 1.0, minimum=0),
            "top_k": CallParameter("integer", "how many of the largest may be drawn; 0: all", 0, minimum=0),
            "top_p": CallParameter(
                "number", "smallest set of the likeliest with this share", 1.0, minimum=0, maximum=1
            ),
        },
        deterministic=False,
    ),
)

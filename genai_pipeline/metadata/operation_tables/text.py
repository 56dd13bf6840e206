"""Operations on text."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op
from genai_pipeline.metadata.operation_tables.vectors import LABELS

_TEXT: Final = OperationInput("text", "a text", kind="text")
_TOKENIZER: Final = CallParameter("string", "name of the tokenizer; default: the package's first", None)

SPECS: Final = table(
    Op(
        "tokenize",
        "Token ids of a text, or of two one behind the other. Control tokens are parsed only if ``special`` says so.",
        (_TEXT, OperationInput("pair", "a second text", optional=True, kind="text")),
        (
            OperationOutput("tokens", "ids [1, n]", dtype="int64", rank=2),
            OperationOutput("mask", "ones [1, n]", dtype="int64", rank=2),
            OperationOutput("types", "0 for the first text, 1 for the second [1, n]", dtype="int64", rank=2),
        ),
        {
            "tokenizer": _TOKENIZER,
            "special": CallParameter("boolean", "whether the texts of control tokens mean these", False),
            "begin": CallParameter("strings", "tokens in front", ()),
            "between": CallParameter("strings", "tokens between the two texts, of type 0", ()),
            "end": CallParameter("strings", "tokens behind, of the last text's type", ()),
        },
    ),
    Op(
        "detokenize",
        "The text of token ids.",
        (OperationInput("tokens", "ids [n] or [1, n]", numbers="integer"),),
        (OperationOutput(RESULT, "the text", "text"),),
        {
            "tokenizer": _TOKENIZER,
            "special": CallParameter("boolean", "whether control tokens show in the text", False),
        },
    ),
    Op(
        "render",
        "A text with values put in: each {} of the template takes the next value.",
        (OperationInput("values", "texts and numbers", None, True, many=True, kind="any"),),
        (OperationOutput(RESULT, "the text", "text"),),
        {"template": CallParameter("string", "the text; {{ and }} stand for single braces")},
    ),
    Op(
        "join",
        "Texts, or lists of texts at any depth, as one text and as one flat list. Values that are absent are left out.",
        (OperationInput("values", "texts and lists of them", many=True, kind="any"),),
        (
            OperationOutput(RESULT, "the texts in order, ``separator`` between them", "text"),
            OperationOutput("items", "the texts in one list, ``between`` put between the outermost values", "list"),
        ),
        {
            "separator": CallParameter("string", "what stands between two texts", " "),
            "between": CallParameter("strings", "what stands between two of the outermost values in ``items``", ()),
            "skip_empty": CallParameter("boolean", "whether empty texts are left out", True),
        },
    ),
    Op(
        "split_text",
        "Splits a text into sentences, longer ones at commas, spaces, and last anywhere.",
        (_TEXT,),
        (OperationOutput(RESULT, "pieces without surrounding spaces, in order", "list"),),
        {
            "length": CallParameter("integer", "most characters of a piece", 200, minimum=1),
            "merge": CallParameter("boolean", "whether short sentences share a piece", False),
        },
    ),
    Op(
        "spans",
        "Named ranges of a text from labels of its tokens: runs of one label, B- beginning and I- going on.",
        (
            OperationInput("scores", "scores of each token and label [1, n, c]", rank=3),
            OperationInput("offsets", "half-open ranges of characters of each token [n, 2]", numbers="integer"),
            _TEXT,
            LABELS,
        ),
        (OperationOutput("items", "``{label, start, end, text, score}``; score: the mean probability", "list"),),
        {"outside": CallParameter("string", "the label of tokens that belong to no range", "O")},
    ),
)

"""Operations from a text to what a voice speaks: numbers as words, words, their phonemes, the ids of those."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

_TEXT: Final = OperationInput("text", "a text", kind="text")
_KNOWN: Final = OperationInput(
    "known", "a dictionary of the package: from word to its phonemes, with spaces between", kind="any", optional=True
)

SPECS: Final = table(
    Op(
        "spell_out",
        "Writes numbers, amounts of money, ordinals, percentages and common abbreviations as words.",
        (_TEXT,),
        (OperationOutput(RESULT, "the text with words in their place", kind="text"),),
        {"language": CallParameter("choice", "the language that the words are of: ``en``", values=("en",))},
        in_body=False,
    ),
    Op(
        "words",
        "Cuts a text into words, in lower case and without accents; what is no letter stands between words.",
        (_TEXT, _KNOWN),
        (
            OperationOutput("words", "the words in order", kind="list"),
            OperationOutput("marks", "the marks behind each word, as a text of none, one or several", kind="list"),
            OperationOutput("unknown", "the words that ``known`` does not have, each once", kind="list"),
        ),
        {
            "letters": CallParameter("string", "the characters that words are made of", "abcdefghijklmnopqrstuvwxyz'"),
            "marks": CallParameter("string", "the characters between words that are kept", ".,;:?!"),
        },
        in_body=False,
    ),
    Op(
        "phonemes",
        "Puts the phonemes of words and the marks behind them one after the other, a list for each sentence.",
        (
            OperationInput("words", "the words in order", kind="any"),
            OperationInput("marks", "the marks behind each word", kind="any"),
            OperationInput("unknown", "words that are not in ``known``", kind="any", optional=True),
            OperationInput("spoken", "the phonemes of each of these, with spaces between", kind="any", optional=True),
            _KNOWN,
        ),
        (
            OperationOutput("sentences", "for each sentence the list of its symbols", kind="list"),
            OperationOutput("last", "true for the last sentence, false for the others [n]", dtype="bool", rank=1),
        ),
        {
            "ends": CallParameter("string", "the marks that end a sentence", ".?!"),
            "space": CallParameter("string", "the symbol between words", " "),
            "longest": CallParameter(
                "integer",
                "a sentence of more symbols is cut behind a word, at another mark if it has one",
                400,
                minimum=1,
            ),
        },
        in_body=False,
    ),
    Op(
        "map_ids",
        "The ids of symbols, by a map of the package.",
        (
            OperationInput("symbols", "a list of symbols", kind="any"),
            OperationInput("map", "from symbol to an id or a list of ids", kind="any"),
        ),
        (OperationOutput(RESULT, "the ids [1, n]", dtype="int64", rank=2),),
        {
            "begin": CallParameter("strings", "symbols put in front", ()),
            "end": CallParameter("strings", "symbols put behind", ()),
            "between": CallParameter("string", "a symbol put between all ids; none if empty", ""),
        },
        in_body=False,
    ),
)

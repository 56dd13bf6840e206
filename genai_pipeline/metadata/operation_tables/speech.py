"""Operations on speech: what a recogniser's outputs mean, and when."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op
from genai_pipeline.metadata.operation_tables.vectors import LABELS

_TOKENIZER: Final = CallParameter("string", "name of the tokenizer; default: the package's first", None)

SPECS: Final = table(
    Op(
        "ctc_decode",
        "The best path of a CTC model: the likeliest symbol of each frame, equal neighbours as one, blanks left out.",
        (
            OperationInput("scores", "scores of each frame and symbol [1, t, v]", rank=3, numbers="float"),
            OperationInput("length", "frames that count; default: all", None, optional=True, numbers="integer"),
            LABELS,
        ),
        (
            OperationOutput("text", "the labels joined; absent without ``labels``", "text"),
            OperationOutput("tokens", "the symbols [1, n]", dtype="int64", rank=2),
            OperationOutput("confidence", "mean of the symbols' confidences; 0 without symbols", dtype="float32"),
            OperationOutput(
                "symbols",
                "``{token, text, start, end, confidence}`` of each, start and end in seconds, confidence: the mean "
                "probability over its frames",
                "list",
            ),
        ),
        {
            "blank": CallParameter("integer", "the symbol that means nothing; labels may leave it out", 0, minimum=0),
            "kind": CallParameter("choice", "what scores are", "probabilities", ("probabilities", "logits")),
            "seconds": CallParameter("number", "length of a frame; 1 gives start and end in frames", 1.0, minimum=0),
        },
        in_body=False,
    ),
    Op(
        "speech_segments",
        "Where somebody speaks, from the probability of speech in each chunk: speech begins at ``threshold`` and ends "
        "where it stays below ``low`` for ``min_silence``.",
        (
            OperationInput("probabilities", "of each chunk [1, n]", rank=2, numbers="float"),
            OperationInput("seconds", "length of the sound; default: that of all chunks", None, optional=True),
            OperationInput("samples", "the sound [1, s], to cut the segments out of", rank=2, optional=True),
        ),
        (
            OperationOutput(
                "segments", "``{start, end}`` in seconds, and with ``samples`` their ``samples`` [1, s]", "list"
            ),
        ),
        {
            "threshold": CallParameter("number", "probability from which a chunk is speech", 0.5, minimum=0, maximum=1),
            "low": CallParameter("number", "probability below which it is none; default: threshold - 0.15", None),
            "seconds": CallParameter("number", "length of a chunk", 0.032, minimum=1e-6),
            "min_speech": CallParameter("number", "seconds; segments that are not longer are dropped", 0.25, minimum=0),
            "min_silence": CallParameter("number", "seconds of silence that end a segment", 0.1, minimum=0),
            "max_speech": CallParameter("number", "seconds; longer ones are cut at the last silence", None, minimum=1),
            "margin": CallParameter("number", "seconds added on both sides, within the silence", 0.03, minimum=0),
            "pack": CallParameter("number", "seconds; neighbours share a segment up to it", None, minimum=0),
            "rate": CallParameter("integer", "samples per second", 16000, minimum=1),
        },
        in_body=False,
    ),
    Op(
        "transcript_times",
        "Segments and text of tokens with timestamps such as <|1.08|>, window by window.",
        (
            OperationInput("tokens", "the tokens of each window, a list of arrays [n]", many=True, numbers="integer"),
            OperationInput("windows", "the windows, with ``start`` and ``end`` in seconds", kind="any"),
        ),
        (
            OperationOutput("segments", "``{start, end, text}``, in seconds of the whole sound", "list"),
            OperationOutput("text", "the texts of all windows, a space between them", "text"),
        ),
        {"tokenizer": _TOKENIZER},
        in_body=False,
    ),
    Op(
        "stitch",
        "Joins the texts, or the timed segments, of windows that overlap, with what they share once.",
        (OperationInput("values", "texts, or lists of ``{start, end, text}``, in order", many=True, kind="any"),),
        (
            OperationOutput("text", "the text", "text"),
            OperationOutput("segments", "the segments in order; absent for texts", "list"),
        ),
        {"words": CallParameter("integer", "most words that two texts may share", 30, minimum=0)},
        in_body=False,
    ),
    Op(
        "align_words",
        "When each word was said, from how tokens attended to the frames of a sound: the cheapest monotonic path.",
        (
            OperationInput("weights", "attention of each head, token and frame [1, h, n, f]", rank=4, numbers="float"),
            OperationInput("tokens", "the tokens [n] or [1, n]", numbers="integer"),
            OperationInput("frames", "frames that count; default: all", None, optional=True, numbers="integer"),
            OperationInput("start", "seconds to add", None, optional=True),
        ),
        (OperationOutput("words", "``{start, end, text}`` in seconds", "list"),),
        {
            "seconds": CallParameter("number", "length of a frame", 0.02, minimum=1e-6),
            "smooth": CallParameter("integer", "frames over which the median is taken, an odd number", 7, minimum=1),
            "tokenizer": _TOKENIZER,
        },
        runs="offload",
        in_body=False,
    ),
)

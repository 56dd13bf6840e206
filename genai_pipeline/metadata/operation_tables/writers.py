"""Operations that write files."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op

_FILE: Final = (OperationOutput(RESULT, "the bytes of the file", "any"),)
_PICTURE: Final = (OperationInput("image", "one picture, its axes as ``layout`` says; 1 or 3 channels"),)
_PIXELS: Final = {
    "layout": CallParameter("choice", "order of the axes", "nchw", ("chw", "hwc", "nchw", "nhwc")),
    "range": CallParameter("numbers", "the values that mean black and white", (0, 1), count=2),
}
_SEGMENTS: Final = (OperationInput("segments", "a list of ``{start, end, text}``, in seconds", kind="any"),)

SPECS: Final = table(
    Op("png", "A PNG file of a picture.", _PICTURE, _FILE, _PIXELS, runs="offload", in_body=False),
    Op(
        "jpeg",
        "A JPEG file of a picture.",
        _PICTURE,
        _FILE,
        {**_PIXELS, "quality": CallParameter("integer", "from small to good", 90, minimum=1, maximum=95)},
        runs="offload",
        in_body=False,
    ),
    Op(
        "wav",
        "A WAV file of 16-bit samples.",
        (OperationInput("samples", "samples between -1 and 1 [1, n] or [1, channels, n]"),),
        _FILE,
        {"rate": CallParameter("integer", "samples per second", minimum=1)},
        runs="offload",
        in_body=False,
    ),
    Op("srt", "A SubRip file of timed text.", _SEGMENTS, _FILE, in_body=False),
    Op("vtt", "A WebVTT file of timed text.", _SEGMENTS, _FILE, in_body=False),
    Op(
        "json",
        "A JSON file of any value; arrays become lists.",
        (OperationInput("value", "what to write", kind="any"),),
        _FILE,
        {"indent": CallParameter("integer", "spaces per level; default: one line", None, minimum=0)},
        in_body=False,
    ),
    Op("npy", "An NPY file of an array.", (OperationInput("value", "the array"),), _FILE, in_body=False),
)

"""genai_pipeline: run generative models described by YAML.

``load``, ``validate`` and ``compile`` are the way in; everything is imported when it is first used, parts of the
standard library too: until the command's entry point runs, which is behind this module, Ctrl-C shows a traceback.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers take for true, as typing's own
if TYPE_CHECKING:
    from typing import Any

    from genai_pipeline.errors import GenaiError as GenaiError
    from genai_pipeline.loading import compile as compile
    from genai_pipeline.loading import load as load
    from genai_pipeline.loading import validate as validate
    from genai_pipeline.ops.media import Audio as Audio
    from genai_pipeline.ops.media import Image as Image
    from genai_pipeline.ops.timed_text import Segment as Segment
    from genai_pipeline.pipeline import Pipeline as Pipeline
    from genai_pipeline.problems import Problem as Problem
    from genai_pipeline.tasks import Transcript as Transcript
    from genai_pipeline.types import Event as Event
    from genai_pipeline.types import Result as Result

__version__ = "0.1.0"

_HOMES = {
    "Audio": "ops.media",
    "GenaiError": "errors",
    "Image": "ops.media",
    "Pipeline": "pipeline",
    "Problem": "problems",
    "Event": "types",
    "Result": "types",
    "Segment": "ops.timed_text",
    "Transcript": "tasks",
    "compile": "loading",
    "load": "loading",
    "validate": "loading",
}

__all__ = [
    "Audio",
    "Event",
    "GenaiError",
    "Image",
    "Pipeline",
    "Problem",
    "Result",
    "Segment",
    "Transcript",
    "compile",
    "load",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'genai_pipeline' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"genai_pipeline.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Tasks by structure: which input and output of a package a transcription, a spoken text or an embedding means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from genai_pipeline.engine.collect import collect_result
from genai_pipeline.errors import RequestError
from genai_pipeline.ops.timed_text import Segment
from genai_pipeline.option_values import integer
from genai_pipeline.problems import one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genai_pipeline.engine.streams import Stream
    from genai_pipeline.metadata.model import InputSpec, Modality, OutputSpec, PackageSpec
    from genai_pipeline.ops.media import Audio
    from genai_pipeline.pipeline import Pipeline
    from genai_pipeline.types import Result


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was said: the whole text, timed segments where the package gives them, and the sound's length in seconds."""

    text: str
    segments: tuple[Segment, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The transcript as JSON-ready fields."""
        segments = [segment.to_dict() for segment in self.segments]
        return {"text": self.text, "segments": segments, "seconds": round(self.seconds, 3)}

    def timed(self) -> tuple[Segment, ...]:
        """The segments; a text without any is one over the whole sound."""
        return self.segments or (Segment(0.0, self.seconds, self.text),)


@dataclass(frozen=True, slots=True)
class Task:
    """The input that a task takes and the output that it gives."""

    input: str
    output: str
    takes_list: bool

    def inputs(self, package: PackageSpec, value: Any, options: dict[str, Any]) -> dict[str, Any]:
        """Inputs of ``run`` for one value; declared parameters are taken out of ``options``."""
        named = {name: options.pop(name) for name in list(options) if name in package.parameters}
        return {self.input: value, **named}


def transcription(package: PackageSpec) -> Task:
    """From a sound to a text. Raises RequestError for a package that does not do that."""
    return _task(package, "transcribe", "audio", lambda output: output.modality == "text")


def speech(package: PackageSpec) -> Task:
    """From a text to a sound. Raises RequestError for a package that does not do that."""
    return _task(package, "speak", "text", lambda output: output.modality == "audio")


def embedding(package: PackageSpec) -> Task:
    """From a text to a vector. Raises RequestError for a package that does not do that."""
    return _task(package, "embed", "text", lambda output: output.modality == "vector")


def can(package: PackageSpec, task: Callable[[PackageSpec], Task]) -> bool:
    """Whether a package does a task."""
    try:
        task(package)
    except RequestError:
        return False
    return True


def _task(package: PackageSpec, verb: str, takes: Modality, gives: Callable[[OutputSpec], bool]) -> Task:
    inputs = [spec for spec in package.inputs.values() if spec.modality == takes]
    outputs = [name for name, output in package.outputs.items() if gives(output)]
    needed = [spec.name for spec in package.inputs.values() if spec.required and spec.default is None]
    if len(inputs) != 1 or len(outputs) != 1 or any(name != inputs[0].name for name in needed):
        has = f"it takes {_modalities(package.inputs)} and gives {_modalities(package.outputs)}"
        hint = f"{has}; use run with the names of its inputs"
        raise RequestError(f"the package '{package.name}' does not {verb}", hint=hint)
    return Task(inputs[0].name, outputs[0], _takes_list(inputs[0]))


def _takes_list(spec: InputSpec) -> bool:
    return spec.is_list or (spec.max_items is not None and spec.max_items > 1)


def _modalities(specs: Mapping[str, InputSpec] | Mapping[str, OutputSpec]) -> str:
    return one_of(dict.fromkeys(spec.modality for spec in specs.values())) if specs else "nothing"


@dataclass(frozen=True, slots=True)
class Transcription:
    """A transcription under way: its stream, and how its transcript is read when it is over."""

    stream: Stream
    read: Callable[[Result], Transcript]

    @staticmethod
    def start(pipe: Pipeline, audio: Any, options: dict[str, Any]) -> Transcription:
        """Submit a sound. Raises RequestError, MediaError or OptionError."""
        task = transcription(pipe.plan.package)
        seconds, stream = pipe.listened(task.input, task.inputs(pipe.plan.package, audio, options), options)
        return Transcription(stream, lambda result: _transcript(task, result.outputs, seconds))


def _transcript(task: Task, outputs: Mapping[str, Any], seconds: float) -> Transcript:
    segments = tuple(Segment.of(fields) for fields in outputs.get(f"{task.output}.segments") or ())
    return Transcript((outputs[task.output] or "").strip(), segments, seconds)


def pieces_of(task: Task, stream: Stream) -> Iterator[Audio]:
    """The pieces of a sound; a package that does not stream gives one at the end. Closes the stream."""
    with stream:
        streamed = False
        for event in stream:
            if event.error is not None:
                raise event.error
            if event.audio is not None:
                streamed = True
                yield event.audio
            elif event.outputs is not None and not streamed:
                yield event.outputs[task.output]


def embedded(
    task: Task,
    package: PackageSpec,
    texts: str | Sequence[str],
    dimensions: int | None,
    open_: Callable[[dict[str, Any]], Stream],
) -> NDArray[Any]:
    """Vectors of texts: one request where the package takes a list, else one per text, all under way at once."""
    many = [texts] if isinstance(texts, str) else list(texts)
    if not many:
        raise RequestError("there is no text to embed", param=task.input)
    given: list[Any] = [many] if task.takes_list else list(many)
    with ExitStack() as stack:
        streams = [stack.enter_context(open_(task.inputs(package, value, {}))) for value in given]
        found = [collect_result(stream).outputs[task.output] for stream in streams]
    vectors = np.atleast_2d(found[0] if task.takes_list else np.stack(found)).astype(np.float32, copy=False)
    shortened = vectors if dimensions is None else shorten(vectors, dimensions)
    return shortened[0] if isinstance(texts, str) else shortened


def shorten(vectors: NDArray[Any], dimensions: int) -> NDArray[Any]:
    """The first ``dimensions`` of vectors [n, d], scaled to length 1. Raises OptionError for more than there are."""
    integer("dimensions", dimensions, 1, vectors.shape[-1])
    cut = vectors[:, :dimensions]
    norms = np.linalg.norm(cut, axis=-1, keepdims=True)
    scaled: NDArray[Any] = np.divide(cut, norms, out=np.zeros_like(cut), where=norms > 0)
    return scaled

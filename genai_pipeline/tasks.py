"""Tasks by structure: which input and output of a package a transcription, a spoken text or an embedding means."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from genai_pipeline.engine.collect import collect_result
from genai_pipeline.errors import RequestError
from genai_pipeline.graph.values import is_list
from genai_pipeline.ops.timed_text import Segment
from genai_pipeline.option_values import integer
from genai_pipeline.problems import one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genai_pipeline.engine.request import Request
    from genai_pipeline.engine.streams import Stream
    from genai_pipeline.metadata.model import InputSpec, Modality, OutputSpec, PackageSpec
    from genai_pipeline.ops.media import Audio

_TOGETHER: Final = 64  # requests of one call that are under way at once


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
    """The input that a task takes, a list of items or one, and the output that it gives."""

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
    lists = [spec.name for spec in inputs if is_list(spec)] if verb != "embed" else []
    if lists or len(inputs) != 1 or len(outputs) != 1 or any(name != inputs[0].name for name in needed):
        has = f"it takes {_modalities(package.inputs)} and gives {_modalities(package.outputs)}"
        hint = f"{has}; use run with the names of its inputs"
        raise RequestError(f"the package '{package.name}' does not {verb}", hint=hint)
    return Task(inputs[0].name, outputs[0], is_list(inputs[0]))


def _modalities(specs: Mapping[str, InputSpec] | Mapping[str, OutputSpec]) -> str:
    return one_of(dict.fromkeys(spec.modality for spec in specs.values())) if specs else "nothing"


@dataclass(frozen=True, slots=True)
class Transcription:
    """A transcription under way; a context manager that cancels it. ``seconds``: the length of the sound."""

    task: Task
    seconds: float
    stream: Stream

    @staticmethod
    def start(
        package: PackageSpec,
        audio: Any,
        options: dict[str, Any],
        read: Callable[[dict[str, Any], dict[str, Any]], Request],
        submit: Callable[[Request], Stream],
    ) -> Transcription:
        """Read a sound as a request, and submit that. Raises RequestError, MediaError or OptionError."""
        task = transcription(package)
        inputs = task.inputs(package, audio, options)
        request = read(inputs, options)
        seconds: Any = request.values[f"{task.input}.seconds"]
        return Transcription(task, float(seconds), submit(request))

    def transcript(self) -> Transcript:
        """Wait for what was said. Raises the error that ended the request."""
        return transcript_of(self.task, collect_result(self.stream).outputs, self.seconds)

    def close(self) -> None:
        """Cancel it unless it is over."""
        self.stream.close()

    def __enter__(self) -> Transcription:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def transcript_of(task: Task, outputs: Mapping[str, Any], seconds: float) -> Transcript:
    """The transcript of a sound of so many seconds, from what a package gave."""
    segments = tuple(Segment.of(fields) for fields in outputs.get(f"{task.output}.segments") or ())
    return Transcript((outputs[task.output] or "").strip(), segments, seconds)


def pieces_of(task: Task, stream: Stream) -> Generator[Audio]:
    """The pieces of a sound; a package that does not stream gives one at the end. Closes the stream."""
    streamed = False
    with stream:
        for event in stream:
            if event.error is not None:
                raise event.error
            if event.audio is not None:
                streamed = True
                yield event.audio
            elif event.outputs is not None and not streamed:
                yield _sound(event.outputs[task.output])


def spoken(task: Task, stream: Stream) -> Audio:
    """The whole sound. Raises the error that ended the request."""
    with stream:
        return _sound(collect_result(stream).outputs[task.output])


def _sound(found: Audio | None) -> Audio:
    if found is None:
        raise RequestError("the package made no sound of this", hint="a stage that makes it was skipped")
    return found


def embedded(
    task: Task, package: PackageSpec, texts: str | Sequence[str], open_: Callable[[dict[str, Any]], Stream]
) -> NDArray[Any]:
    """Vectors of texts, float32 [n, d]: one request where the package takes a list, else one per text, run together."""
    many = [texts] if isinstance(texts, str) else list(texts)
    if not many:
        raise RequestError("there is no text to embed", param=task.input)
    given: list[Any] = [many] if task.takes_list else list(many)
    found = list(_in_turn(task, (partial(open_, task.inputs(package, value, {})) for value in given)))
    return np.atleast_2d(found[0] if task.takes_list else np.stack(found)).astype(np.float32, copy=False)


def _in_turn(task: Task, begin: Iterator[Callable[[], Stream]]) -> Iterator[Any]:
    """What requests give, in order; a bounded number of them is under way."""
    with ExitStack() as held:
        under_way: deque[Stream] = deque()
        for start in begin:
            under_way.append(held.enter_context(start()))
            if len(under_way) == _TOGETHER:
                yield collect_result(under_way.popleft()).outputs[task.output]
        while under_way:
            yield collect_result(under_way.popleft()).outputs[task.output]


def shorten(vectors: NDArray[Any], dimensions: int) -> NDArray[Any]:
    """The first ``dimensions`` of vectors [n, d], scaled to length 1. Raises OptionError for more than there are."""
    integer("dimensions", dimensions, 1, vectors.shape[-1])
    cut = vectors[:, :dimensions]
    norms = np.linalg.norm(cut, axis=-1, keepdims=True)
    scaled: NDArray[Any] = np.divide(cut, norms, out=np.zeros_like(cut), where=norms > 0)
    return scaled

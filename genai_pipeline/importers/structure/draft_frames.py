"""The draft of a graph that scores frames: a sound or a picture of a line is read by its best path (CTC).

What follows from the graph is written: the run, the scores, whether they are logits. The symbols and the blank among
them, and how a file becomes numbers, are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.package_writer import flow
from genai_pipeline.importers.structure.draft_parts import asked, todo
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.ports import FLOATS
from genai_pipeline.metadata.drafts import FIELD

_SCORES_RANK = 3  # batch, frames, symbols
# Rank of what is read -> the input's name and modality, and what a program publishes for the port.
_READ = {
    2: ("sound", "audio", "sound.samples"),
    3: ("sound", "audio", "sound.features"),
    4: ("picture", "image", "picture.pixels"),
}
_LENGTHS = ("samples.length", "valid_frames")
_LABELS = "a JSON file in this folder with a list of what is written for each symbol, '' for the blank"
_MEANING = "do the scores say which symbol each frame has (CTC)? Else give them as they are, without ctc_decode"


def scores_frames(part: Part) -> bool:
    """Whether a graph scores symbols for each frame of something that is no text."""
    scores = part.logits
    if scores is None or not scores.certain or part.port_of("tokens") is not None or part.states:
        return False
    return len(part.facts.outputs[scores.value].shape or ()) == _SCORES_RANK and _read(part) is not None


def frame_lines(part: Part, components: Iterable[str]) -> Iterator[str]:
    """The draft below its name; ``components`` are the lines of the graph."""
    port = _read(part)
    assert port is not None
    assert part.logits is not None
    name, modality, field = _READ[len(port.shape or ())]
    inputs = {port.name: field} | {
        other: _other(name, part, other) for other in part.facts.inputs if other != port.name
    }
    program = todo("the program that makes it of a file, declared under preprocess:")
    yield "inputs:"
    yield f"  {name}: {{modality: {modality}, program: {program}}}"
    yield "outputs:"
    yield "  text: {modality: text, value: text}"
    yield "data:"
    yield f"  labels: {{file: {todo(_LABELS)}}}"
    yield from components
    yield "stages:"
    if "all" in inputs.values():
        yield f"  - {{op: mask, inputs: {{length: {field}.length}}, outputs: {{result: all}}}}"
    run = f"inputs: {flow(inputs)}, outputs: {{{flow(part.logits.value)}: scores}}"
    yield f"  - {{id: read, run: encoder, {run}}}"
    yield "  - id: write"
    yield "    op: ctc_decode"
    yield f"    with: {{kind: {_kind(part)}, blank: {_blank(part)}}}"
    yield "    inputs: {scores: scores, labels: data.labels}"
    yield "    outputs: {text: text}"
    yield f"{FIELD}: {flow([_MEANING])}"


def _read(part: Part) -> Port | None:
    """The input that takes what is read: the only one of numbers."""
    ports = [port for port in part.facts.inputs.values() if port.dtype in FLOATS]
    return ports[0] if len(ports) == 1 and len(ports[0].shape or ()) in _READ else None


def _other(name: str, part: Part, port: str) -> str:
    """What another input is bound to: a mask of all samples, else a question."""
    meaning = part.inputs[port].value
    if meaning == "mask" and name == "sound" and len(part.facts.inputs[port].shape or ()) == 2:
        return "all"
    choices = [f"{name}.{field}" for field in _LENGTHS] if meaning == "lengths" else []
    return asked(f"what does {port} take", *choices)


def _kind(part: Part) -> str:
    """Whether the graph ends in probabilities."""
    assert part.logits is not None
    return "probabilities" if part.facts.writers.get(part.logits.value) == frozenset({"Softmax"}) else "logits"


def _blank(part: Part) -> str:
    """The symbol that means nothing: by custom the first one or the last one."""
    assert part.logits is not None
    count = (part.facts.outputs[part.logits.value].shape or ("",))[-1]
    last = (str(count - 1),) if isinstance(count, int) else ()
    return todo("the number of the blank among the symbols", "0", *last)

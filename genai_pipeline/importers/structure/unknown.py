"""The draft of a folder whose graphs do not fit together by their ports: it describes them, and makes nothing up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from genai_pipeline.importers.package_writer import flow
from genai_pipeline.importers.structure.draft_parts import component_lines, todo
from genai_pipeline.importers.structure.joining import ModelParts
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.ports import shown_shape
from genai_pipeline.importers.structure.texts import Texts

_KINDS = {
    "decoder": "writes tokens: it has logits and takes tokens or embeddings",
    "embed": "turns tokens into rows",
    "encoder": "reads: no state, no tokens chosen",
    "joiner": "joins rows of two graphs into logits, as in a transducer",
    "recurrent": "keeps a state from run to run and gives no logits",
    "unknown": "of no kind that the ports tell",
}
_SHOWN = 12  # ports of a graph in a comment


def unknown_text(name: str, parts: Sequence[Part], texts: Texts) -> str:
    """Metadata with the components as found; how they work together is one open question with all that was seen."""
    names = _names(parts)
    joined = ModelParts(leftover=tuple(parts))
    lines = ["# A draft made from the graphs. How they work together does not follow from their ports, so that nothing"]
    lines += ["# is written that would be a guess. `genai-pipeline validate` lists what is open.", "#"]
    for component, part in zip(names, parts, strict=True):
        lines += _described(component, part)
    lines += ['schema_version: "1"', f"name: {flow(name)}"]
    lines += [f"inputs: {todo('what does a request give? {NAME: {modality: text | audio | image | tensor}}')}"]
    lines += [f"outputs: {todo('what comes out? {NAME: {modality: text | audio | vector | tensor, value: ...}}')}"]
    if texts.tokenizer is not None:
        lines += [f"tokenizer: {{file: {flow(texts.tokenizer)}}}"]
    lines += ["components:"]
    for component, part in zip(names, parts, strict=True):
        lines += component_lines(component, part, joined, texts)
    lines += [f"stages: {todo(_question(names, parts))}", ""]
    return "\n".join(lines)


def _question(names: Sequence[str], parts: Sequence[Part]) -> str:
    said = "; ".join(f"{name} {_KINDS[part.kind]}" for name, part in zip(names, parts, strict=True))
    hint = ""
    if any(part.kind == "joiner" for part in parts):
        hint = "; for a transducer see loop: decode with walk in docs/metadata.md"
    return f"how do the graphs work together? {said}{hint}"


def _described(component: str, part: Part) -> Iterator[str]:
    yield " ".join(f"# {component} ({part.facts.file}) {_KINDS[part.kind]}.".split())
    for title, ports in (("takes", part.facts.inputs), ("gives", part.facts.outputs)):
        shown = [f"{port.name} {port.dtype} {shown_shape(port)}" for port in list(ports.values())[:_SHOWN]]
        more = f", and {len(ports) - _SHOWN} more" if len(ports) > _SHOWN else ""
        yield f"#   {title} {' '.join(', '.join(shown).split())}{more}"


def _names(parts: Sequence[Part]) -> list[str]:
    """A component name for each graph, from its file."""
    found: list[str] = []
    for index, part in enumerate(parts):
        stem = re.sub(r"\W+", "_", PurePosixPath(part.facts.file).stem, flags=re.ASCII)
        name = stem if stem[:1].isalpha() and stem not in found else f"graph_{index}"
        found.append(name)
    return found

"""``init``: reads the ONNX files of a folder and writes a draft of its metadata, with every open question marked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from genai_pipeline.errors import GraphFileError, ImportModelError
from genai_pipeline.importers.package_writer import flow, package_name
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.preprocessor_config import FILE, image_program
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.draft import draft_text
from genai_pipeline.importers.structure.draft_media import Pictures
from genai_pipeline.importers.structure.graph_facts import GraphFacts, read_facts
from genai_pipeline.importers.structure.joining import join_parts
from genai_pipeline.importers.structure.pairs import with_pairs
from genai_pipeline.importers.structure.parts import read_part
from genai_pipeline.importers.structure.texts import read_texts
from genai_pipeline.importers.structure.token_runs import takes_one
from genai_pipeline.importers.structure.unknown import unknown_text
from genai_pipeline.metadata.drafts import MARK, open_questions
from genai_pipeline.metadata.load import METADATA_FILE
from genai_pipeline.metadata.yaml_reader import read_text
from genai_pipeline.problems import Problem

_MAX_GRAPHS = 32
_TOKENS_RANK = 2


@dataclass(frozen=True, slots=True)
class Draft:
    """The file that was written, and the questions it leaves open."""

    file: Path
    questions: tuple[Problem, ...]


def write_draft(folder: Path, *, name: str | None = None, force: bool = False) -> Draft:
    """Write ``inference_metadata.yaml`` for the graphs in ``folder``. Raises ImportModelError.

    A file that is there already is kept, unless ``force``.
    """
    source = SourceFolder(folder)
    target = folder / METADATA_FILE
    if os.path.lexists(target) and not force:
        raise ImportModelError(f"{target}: is there already", hint="give --force to write another in its place")
    text = drafted(source, package_name(name, folder))
    root, faults = read_text(text, str(target))
    assert root is not None, faults
    _replace(target, text)
    return Draft(target, open_questions(root))


def drafted(source: SourceFolder, name: str) -> str:
    """The draft as text."""
    files = source.onnx_files()
    if not files:
        raise ImportModelError(
            f"{source.path}: has no ONNX files", hint="a draft is made from graphs; `import` reads other formats"
        )
    if len(files) > _MAX_GRAPHS:
        raise ImportModelError(f"{source.path}: has {len(files)} ONNX files; a draft is made of at most {_MAX_GRAPHS}")
    graphs = _one_of_each([_read(source, file) for file in files])
    texts = read_texts(source)
    parts = with_pairs([read_part(facts[0], texts.vocabulary) for facts in graphs])
    joined = join_parts(parts)
    if joined.leftover:
        text = unknown_text(name, parts, texts)
    else:
        text = draft_text(name, joined, texts, pictures=_pictures(source))
    for first, *others in graphs:
        if others:
            choices = " | ".join(facts.file for facts in (first, *others))
            question = f"these files have the same ports; which one? {choices}"
            for key in ("model", "first", "later"):
                text = text.replace(f"{key}: {flow(first.file)}", f"{key}: {flow(f'{MARK} {question}')}")
    return text


def _read(source: SourceFolder, file: str) -> GraphFacts:
    try:
        return read_facts(source.path, file)
    except GraphFileError as error:
        raise ImportModelError(error.message, hint=error.hint) from error


def _pictures(source: SourceFolder) -> Pictures | None:
    """The program that the config of an image processor says; None: there is none, or a program cannot say it."""
    if not source.has(FILE):
        return None
    report = ImportReport()
    try:
        steps, tiles = image_program(source.json(FILE), report)
        report.check(FILE)
    except ImportModelError:
        return None  # the draft asks for the program
    return Pictures(tuple(steps), tiles)


def _one_of_each(graphs: Sequence[GraphFacts]) -> list[list[GraphFacts]]:
    """Graphs with the same ports together: one model in several precisions, of which a package uses one.

    A graph with room for one token is another model than one for any number: the two are for later and first runs.
    """
    found: dict[object, list[GraphFacts]] = {}
    for facts in graphs:
        single = any(takes_one(port.shape) and len(port.shape or ()) == _TOKENS_RANK for port in facts.inputs.values())
        found.setdefault((tuple(sorted(facts.inputs)), tuple(sorted(facts.outputs)), single), []).append(facts)
    return list(found.values())


def _replace(target: Path, text: str) -> None:
    """Writes the file whole or not at all."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            file.write(text)
        Path(file.name).chmod(0o644)
        os.replace(file.name, target)
    except OSError as error:
        raise ImportModelError(f"{target}: cannot be written: {error.strerror}") from error

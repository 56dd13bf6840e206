"""From a folder with an inference-metadata document to a package: graphs recognised by structure, the rest checked.

The document says how graphs are wired; the graphs say what they are. A package is made where both agree and nothing is
left open; else the import stops with all that stands against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from genai_pipeline.errors import GraphFileError, ImportModelError
from genai_pipeline.importers.check import Check, unchecked
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.end_tokens import end_tokens
from genai_pipeline.importers.package_writer import (
    check_free,
    flow,
    new_package,
    package_name,
    write_json,
    write_text,
)
from genai_pipeline.importers.progress import Progress, silent
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.draft import draft_text
from genai_pipeline.importers.structure.graph_facts import read_facts
from genai_pipeline.importers.structure.joining import ModelParts, join_parts
from genai_pipeline.importers.structure.parts import Part, read_part
from genai_pipeline.importers.structure.texts import Texts, read_texts
from genai_pipeline.importers.workflow.dictation import dictates, dictation_text
from genai_pipeline.importers.workflow.document import DOCUMENT, Document, read_document
from genai_pipeline.importers.workflow.facts import package_facts, report_keys, sampling_defaults
from genai_pipeline.importers.workflow.kernels import check_kernels
from genai_pipeline.importers.workflow.kinds import find_media, mapped_keys, with_profiles
from genai_pipeline.importers.workflow.model_keys import report_model
from genai_pipeline.importers.workflow.older import check_pipeline, state_pairs
from genai_pipeline.importers.workflow.policies import check_policies, is_policy, readers_of_requests, samplers_of
from genai_pipeline.importers.workflow.steps import Program, read_program
from genai_pipeline.importers.workflow.translation import defaults_of_answers, translates, with_answers
from genai_pipeline.importers.workflow.windows import within_window
from genai_pipeline.metadata.drafts import open_questions
from genai_pipeline.metadata.yaml_reader import read_text

_TEXTS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
_HINT = "write the package by hand, or from a draft: genai-pipeline init"


def import_workflow(
    source: Path,
    target: Path,
    *,
    name: str | None = None,
    eos: Sequence[str] = (),
    progress: Progress = silent,
    check: Check = unchecked,
) -> ImportReport:
    """Turns the folder ``source`` into the package folder ``target`` and tells what became of each key.

    ``eos``: tokens that end an answer, by text or id, in place of those that the folder's files say. ``check`` looks at
    the package before it gets its name.
    Raises ImportRefusedError listing every construct that has no counterpart, and ImportModelError.
    """
    title = package_name(name, target)
    check_free(target)
    folder, report = SourceFolder(source), ImportReport()
    progress(f"reading {DOCUMENT}", 0, 0)
    document = read_document(folder, report)
    program = read_program(document.workflow, report)
    facts = package_facts(document, program)
    texts = read_texts(folder)
    texts = replace(texts, eos=texts.eos or facts.eos, context=facts.context or texts.context)
    texts = replace(texts, eos=end_tokens(folder, texts, eos, report))
    texts = with_profiles(document, texts, report)
    try:
        networks, policies = _sorted(folder, document, program)
        parts = {key: read_part(read_facts(folder.path, file), texts.vocabulary) for key, file in networks.items()}
        texts = within_window(folder, document, parts.values(), texts, report)
        check_kernels(folder, parts.values(), report)
        joined = join_parts(list(parts.values()))
        _check(folder, document, program, parts, policies, report)
        media = find_media(parts)
        check_pipeline(document, parts, joined, report, media.edges if media is not None else ())
    except GraphFileError as error:
        raise ImportModelError(error.message, hint=error.hint) from error
    report_keys(document, report, mapped_keys(document, media, report))
    report_model(document, parts, report)
    files: Mapping[str, Any] = {}  # that the metadata needs
    if media is not None:
        text, files = media.written(title, folder, document, texts, report)
        _closed(text, report)
    else:
        text = _text(title, folder, document, joined, texts, report)
    text += _generation(document, program, folder, joined, report)
    report.check(str(source))
    with new_package(target) as scratch:
        write_text(scratch / DOCUMENT, text)
        for file, content in files.items():
            write_json(scratch / file, content)
        for file in networks.values():
            progress(f"linking {file}", 0, 0)
            folder.link_graph(file, scratch)
        templates = [texts.chat_template] if texts.chat_template else []
        folder.link([file for file in (*_TEXTS, *templates) if folder.has(file)], scratch)
        report.write(scratch)
        check(scratch, str(source), report.rows)
    return report


def _sorted(folder: SourceFolder, document: Document, program: Program) -> tuple[dict[str, str], dict[str, str]]:
    """Components that are networks, and those that are policies."""
    for file in document.graphs.values():
        folder.need(file, "a component of the document")
    programmed = document.form == "workflow"  # the older form has networks only
    policies = {name: file for name, file in document.graphs.items() if programmed and is_policy(folder, file)}
    networks = {name: file for name, file in document.graphs.items() if name not in policies}
    for name in readers_of_requests(folder, program, policies, networks):
        networks[name] = policies.pop(name)
    return networks, policies


def _check(
    folder: SourceFolder,
    document: Document,
    program: Program,
    parts: Mapping[str, Part],
    policies: Mapping[str, str],
    report: ImportReport,
) -> None:
    """What the document says against what the graphs say."""
    decoders = {name: part for name, part in parts.items() if part.kind == "decoder"}
    if document.form == "workflow":
        if program.loops and not decoders:
            why = "its loop runs no graph that writes tokens one after another (masked, diffusion, codec)"
            report.refused(DOCUMENT, "pipeline.workflow.steps", why, _HINT)
        logits = frozenset(
            call.outputs[part.logits.value]
            for name, part in parts.items()
            for call in program.calls(name)
            if part.logits is not None and part.logits.value in call.outputs
        )
        contracts = _contracts(document.workflow)
        check_policies(folder, program, policies, logits, samplers_of(contracts), report)
    for name, part in decoders.items():
        said = state_pairs(document, program, name)
        for state in part.states:
            for key, port in state.past.ports.items():
                present = state.present.ports[key].name if state.present is not None else None
                if said and state.update.value != "fixed" and said.get(port.name) != present:
                    why = f"'{port.name}' becomes '{said.get(port.name)}' there, and '{present}' by names and sizes"
                    report.refused(DOCUMENT, f"state of {name}", why, _HINT)


def _generation(
    document: Document, program: Program, folder: SourceFolder, joined: ModelParts, report: ImportReport
) -> str:
    """The defaults with which the document's own sampler chooses, else those of the model's files, as a line."""
    contracts = _contracts(document.workflow)
    found: dict[str, Any] = {}
    for name in samplers_of(contracts):
        contract = document.workflow.mapping("components").mapping(name).mapping("contract")
        if contract.mapping("parameters").text("mode", "none") == "greedy":
            return "generation: {defaults: {temperature: 0}}\n"
        for call in program.calls(name):
            found |= sampling_defaults(document, call.inputs)
    if not found and translates(joined):
        found = defaults_of_answers(folder, report)
    return f"generation: {{defaults: {flow(found)}}}\n" if found else ""


def _contracts(workflow: ConfigNode) -> dict[str, str | None]:
    components = workflow.mapping("components")
    return {name: components.mapping(name).mapping("contract").text("id", "none") for name in components.keys}


def _text(
    title: str, folder: SourceFolder, document: Document, joined: ModelParts, texts: Texts, report: ImportReport
) -> str:
    """The metadata; what it would leave open is refused."""
    for part in joined.leftover:
        why = f"how '{part.facts.file}' works with the others does not follow from its ports"
        report.refused(DOCUMENT, "components", why, _HINT)
    if joined.leftover:
        return ""
    origin = f"Imported from an inference-metadata document ({document.form}); the graphs' own ports say the rest."
    if dictates(joined, texts):
        return _closed(dictation_text(title, folder, joined, texts, origin, report), report)
    if translates(joined):
        texts = with_answers(folder, joined, texts, report)
    return _closed(draft_text(title, joined, texts, origin), report)


def _closed(text: str, report: ImportReport) -> str:
    """The metadata, in which nothing may be open."""
    root, faults = read_text(text, DOCUMENT)
    assert root is not None, faults
    for question in open_questions(root):
        report.refused(DOCUMENT, question.at.path, question.message, _HINT)
    return text

"""The validation layer of inputs: programs, the fields that stages read of them, and lengths of texts.

Names that stand for nothing, and fields that no input of a modality ever has, are reported by other layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from genai_pipeline.graph.uses import Use, admission_uses, below, body_uses, named, output_uses, stage_uses
from genai_pipeline.graph.values import FIELDS, WINDOW_FIELDS
from genai_pipeline.metadata.expressions import names
from genai_pipeline.metadata.model import InputSpec, PackageSpec, StageSpec
from genai_pipeline.preprocess.choices import check_choices
from genai_pipeline.preprocess.given_inputs import MEDIA
from genai_pipeline.preprocess.placeholder_checks import check_placeholders
from genai_pipeline.preprocess.programs import Program, check_program
from genai_pipeline.preprocess.text_inputs import loop_texts
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Problems, nearest, one_of

_WINDOWS: Final = "windows"
_MEASURES: Final = (".length", ".shape")


def check_inputs(spec: PackageSpec, tokenizers: Mapping[str, Tokenizer], problems: Problems) -> None:
    """Report what cannot work about the inputs of a package."""
    published = {name: _published(owner, spec, problems) for name, owner in spec.inputs.items()}
    _check_unused_programs(spec, problems)
    for use in _uses(spec):
        for name in sorted(names(use.expr)):
            _check_read(name, use, spec, published, problems)
    _check_lengths(spec, tokenizers, problems)
    check_choices(spec, problems)
    check_placeholders(spec, tokenizers, published, problems)


def _published(owner: InputSpec, spec: PackageSpec, problems: Problems) -> frozenset[str] | None:
    """The fields that an input's program gives; None where there is none, or a faulty one."""
    if owner.modality not in MEDIA and owner.program is None:
        return None
    if owner.program is None:
        message = f"the {owner.modality} input '{owner.name}' has no program that makes values of it"
        hint = f"program: NAME, with NAME an entry of preprocess whose first step is decode{_known(spec)}"
        problems.error(owner.at, "program.missing", message, hint)
        return None
    program = spec.programs.get(owner.program)
    if program is None:
        return None
    found = Problems()
    check_program(program, owner.modality, found, frozenset(f"parameters.{name}" for name in spec.parameters))
    seen = {(problem.code, problem.at, problem.message) for problem in problems}  # two inputs may share a program
    problems.extend(problem for problem in found if (problem.code, problem.at, problem.message) not in seen)
    return None if found.failed else Program.of(program, owner.modality).publishes


def _known(spec: PackageSpec) -> str:
    return f"; there are: {one_of(spec.programs)}" if spec.programs else ""


def _check_unused_programs(spec: PackageSpec, problems: Problems) -> None:
    used = {owner.program for owner in spec.inputs.values()}
    for name, program in spec.programs.items():
        if name not in used:
            problems.warning(program.at, "program.unused", f"no input uses the program '{name}'", "remove it")


def _uses(spec: PackageSpec) -> Iterator[Use]:
    """Everything that reads values."""
    yield from _stage_uses(spec.stages)
    yield from output_uses(spec.outputs.values())
    yield from admission_uses(spec)


def _stage_uses(stages: tuple[StageSpec, ...]) -> Iterator[Use]:
    for stage in stages:
        if stage.for_each is not None:
            yield named(stage.for_each, "for_each", below(stage.at, "for_each"))
        yield from stage_uses(stage)
        yield from body_uses(stage)
        yield from _stage_uses(stage.body)


def _check_read(
    name: str, use: Use, spec: PackageSpec, published: Mapping[str, frozenset[str] | None], problems: Problems
) -> None:
    """A field of an input must be one that its program gives."""
    owner, _, field = name.partition(".")
    given = published.get(owner)
    if given is None or not field:
        return
    field = _measured(field)
    inner = field.removeprefix(f"{_WINDOWS}.")
    known = given | (WINDOW_FIELDS if inner != field else _positions(spec.inputs[owner]))
    if inner in known or inner not in _possible(spec.inputs[owner]):
        return
    if inner == "positions":
        message = f"'{name}' is the places of '{owner}' in the prompt, and the input has no placeholder"
        problems.error(use.at, "program.field", message, 'placeholder: {token: "<image>", count: 64}')
        return
    program = spec.inputs[owner].program
    hint = nearest(inner, known) or f"it gives {one_of(sorted(known))}"
    message = f"the program '{program}' of '{owner}' gives no '{inner}', which '{name}' reads"
    problems.error(use.at, "program.field", message, hint)


def _positions(owner: InputSpec) -> frozenset[str]:
    return frozenset({"positions"} if owner.placeholder is not None else ())


def _possible(owner: InputSpec) -> frozenset[str]:
    """The fields that inputs of a modality may have; others are no values at all."""
    return frozenset(field[0] for field in FIELDS[owner.modality]) | WINDOW_FIELDS


def _measured(field: str) -> str:
    """The field itself, where its length or shape is read."""
    return next((field.removesuffix(end) for end in _MEASURES if field.endswith(end)), field)


def _check_lengths(spec: PackageSpec, tokenizers: Mapping[str, Tokenizer], problems: Problems) -> None:
    """Padding needs a token, and a prompt must not be padded."""
    for name, declared in spec.tokenizers.items():
        tokenizer = tokenizers.get(name)
        if declared.pad_to is not None and tokenizer is not None and tokenizer.pad_id is None:
            message = f"texts are padded to {declared.pad_to} tokens, and no pad token is declared"
            problems.error(below(declared.at, "pad_to"), "tokenizer.pad_missing", message, "declare 'pad'")
    starts = loop_texts(spec)
    for name, owner in spec.inputs.items():
        entry = spec.tokenizers.get(owner.tokenizer or "default")
        if owner.modality == "text" and name in starts and entry is not None and entry.pad_to is not None:
            message = f"a decode loop starts from '{name}', whose texts are padded to {entry.pad_to} tokens"
            hint = "padding would be part of the prompt: declare another tokenizer entry without pad_to for it"
            problems.error(below(entry.at, "pad_to"), "tokenizer.pad_prompt", message, hint)

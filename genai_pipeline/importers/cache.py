"""The user's cache of packages: where it is, and how a package gets into it whole or not at all.

Home of platformdirs and filelock. Layout below the cache folder::

    packages/NAME/VARIANT/       a whole package; ``.made.json`` in it says what it was made from
    packages/NAME/.VARIANT.*     one being made, or left over from a run that was killed
    locks/NAME.VARIANT.lock      held while VARIANT of NAME is being made
    downloads/, compiled/        what packages are made of, and graphs that providers compiled: modules of their own

A package is built in a temporary folder beside its final place, flushed to disk, and renamed: whoever finds the
final folder finds all of it. Two processes that want the same package take turns by the lock.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from genai_pipeline.errors import PullError

HOME_VARIABLE = "GENAI_PIPELINE_HOME"
_STAMP = ".made.json"


def cache_home() -> Path:
    """The cache folder: ``GENAI_PIPELINE_HOME``, else the user's cache folder of the platform. It may not exist yet."""
    import platformdirs

    return _chosen_home() or platformdirs.user_cache_path("genai-pipeline")


def data_home() -> Path:
    """The folder of what users made: ``GENAI_PIPELINE_HOME``, else the user's data folder. It may not exist yet."""
    import platformdirs

    return _chosen_home() or platformdirs.user_data_path("genai-pipeline")


def _chosen_home() -> Path | None:
    chosen = os.environ.get(HOME_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else None


def package_folder(name: str, variant: str) -> Path:
    """Where that variant of a package is, or would be."""
    return cache_home() / "packages" / name / variant


def is_whole(folder: Path, fingerprint: str) -> bool:
    """Whether the folder holds a finished package made from what ``fingerprint`` stands for."""
    try:
        stamp = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):  # absent, out of reach, or cut off
        return False
    return isinstance(stamp, dict) and stamp.get("fingerprint") == fingerprint


def materialise(
    folder: Path,
    fingerprint: str,
    build: Callable[[Path], None],
    *,
    renew: bool = False,
    waiting: Callable[[], None] = lambda: None,
) -> Path:
    """Make a package with ``build(target)`` unless it is there already (``renew``: even then), and return its folder.

    ``build`` gets a path that does not exist yet and must create the package there. ``waiting`` is called once
    when another process holds the lock. Raises PullError when the cache folder cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder, waiting):
            if not renew and is_whole(folder, fingerprint):
                return folder
            _remove_leftovers(folder)
            with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
                made = Path(scratch) / "package"
                build(made)
                (made / _STAMP).write_text(json.dumps({"fingerprint": fingerprint}) + "\n", encoding="utf-8")
                _flush(made)
                if folder.exists():
                    folder.rename(Path(scratch) / "replaced")
                made.rename(folder)
    except OSError as error:
        raise PullError(
            f"cannot write the package cache: {error}",
            hint=f"free some space, or name another folder with {HOME_VARIABLE}",
        ) from error
    return folder


@contextmanager
def _locked(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of one variant; a lock dies with the process that held it."""
    import filelock

    locks = cache_home() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(locks / f"{folder.parent.name}.{folder.name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed runs left behind; safe under the lock, since nobody else makes this variant."""
    for leftover in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(leftover)


def _flush(folder: Path) -> None:
    """Force file contents to disk before the rename makes them visible, or a power cut could leave holes in them."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())

"""Graphs that a provider compiled, in the user's cache: one folder a key, which comes whole or not at all.

Layout below the cache folder: ``compiled/KEY/``. What a key stands for, and what lies in a folder, is up to the backend
that asks; ``genai-pipeline doctor`` tells how many there are and how much they take. Any of them may be deleted at any
time: it is made again when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from genai_pipeline.importers.cache import cache_home, materialise

_FOLDER: Final = "compiled"


@dataclass(frozen=True, slots=True)
class CompiledGraphs:
    """What is kept: the folder of all, how many there are, and their bytes."""

    folder: Path
    count: int
    nbytes: int


def compiled_graph(key: str, build: Callable[[Path], None], renew: bool = False) -> Path:
    """The folder of a key, made by ``build(target)`` where it is not there, or is to be made anew.

    Processes that want the same one take turns, so that one makes it. Raises PullError: the cache cannot be written.
    """
    return materialise(_home() / key, key, build, renew=renew)


def compiled_graphs() -> CompiledGraphs:
    """What is there now; folders that are being made do not count."""
    home = _home()
    folders = [path for path in home.iterdir() if not path.name.startswith(".")] if home.is_dir() else []
    nbytes = sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
    return CompiledGraphs(home, len(folders), nbytes)


def _home() -> Path:
    return cache_home() / _FOLDER

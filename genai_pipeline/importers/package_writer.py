"""A package folder that appears whole or not at all: written beside its place, then renamed into it."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from genai_pipeline.errors import ImportModelError
from genai_pipeline.metadata.schema import load_schema

WIDTH: Final = 110  # characters of a line of metadata
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_NOT_TEXT: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # to YAML 1.1 or 1.2


@contextmanager
def new_package(target: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``target`` when the block ends well and vanishes when it does not.

    Raises ``ImportModelError`` when ``target`` holds something already or cannot be written.
    """
    check_free(target)
    absent = [folder for folder in target.parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        with _removed_on_failure(scratch, absent):
            yield scratch
            scratch.chmod(0o777 & ~_umask())  # mkdtemp makes folders private
            _sync(scratch)
            _move(scratch, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise ImportModelError(
            f"{target}: cannot be written: {error.strerror or error}", hint="see to free space and access rights"
        ) from error


@contextmanager
def _removed_on_failure(folder: Path, parents: Sequence[Path]) -> Iterator[None]:
    """``parents``, the inner ones first, were made for the folder: they go with it."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # somebody else put something there
            for parent in parents:
                parent.rmdir()
        raise


def package_name(given: str | None, target: Path) -> str:
    """The package's name: the given one, else the folder's; it must be one that the metadata can have."""
    name = target.resolve().name if given is None else given
    rule = load_schema()["$defs"]["packageName"]
    if re.fullmatch(rule["pattern"], name) and not name.endswith("\n"):
        return name
    whose = f"the name of the folder {target}" if given is None else repr(given)
    raise ImportModelError(
        f"{whose} is no name for a package: {rule['patternErrorMessage']}",
        hint="give another name with --name" if given is None else "choose another name",
    )


def check_free(target: Path) -> None:
    """Raises ``ImportModelError`` unless ``target`` is absent or an empty folder."""
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        raise ImportModelError(
            f"{target}: exists and is not an empty folder", hint="give a new folder, or remove this one first"
        )


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text with the line ends it has."""
    path.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, value: Any) -> None:
    """Writes ``value`` as JSON, characters as they are."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=1))


def flow(value: Any) -> str:
    """A mapping, list or scalar as YAML on one line; texts that no reader takes for anything else without quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)  # JSON strings are YAML strings


def wrapped(values: Sequence[Any], indent: str) -> Iterator[str]:
    """A list of scalars over several lines of at most ``WIDTH`` characters."""
    line = f"{indent}["
    for index, value in enumerate(values):
        item = flow(value) + ("]" if index == len(values) - 1 else ", ")
        if len(line) + len(item) > WIDTH:
            yield line.rstrip()
            line = f"{indent} "
        line += item
    yield line


def _move(scratch: Path, target: Path) -> None:
    if target.is_dir():
        target.rmdir()  # empty: renaming over a folder works on some systems only
    scratch.rename(target)


def _sync(folder: Path) -> None:
    """Brings every file of ``folder`` to the disk, so that the rename never shows a name without its bytes."""
    for path in folder.iterdir():
        if path.is_dir():
            _sync(path)
            continue
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

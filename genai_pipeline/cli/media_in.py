"""Pictures and sounds that are named on a command line: looked at before anything is loaded, read for a message."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.errors import MediaError

if TYPE_CHECKING:
    from genai_pipeline.metadata.model import PackageSpec

FLAGS: Final = {"images": ("image", "--image"), "audio": ("audio", "--audio")}  # of the API -> modality, flag
MOST_BYTES: Final = 512 << 20  # of a file that becomes part of a message
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes with a message; its bytes are kept, so that the conversation outlives the file."""

    modality: str
    path: str
    data: bytes

    @staticmethod
    def read(modality: str, path: str) -> Attachment:
        """Read a file. Raises MediaError."""
        from genai_pipeline.preprocess.media import read_media

        check_file(path)
        with naming({modality: path}):
            return Attachment(modality, path, read_media(Path(path), modality, MOST_BYTES))

    def part(self) -> dict[str, Any]:
        """The part of a message that it becomes."""
        return {"type": self.modality, self.modality: self.data}


def content(text: str, media: Iterable[Attachment]) -> str | list[Mapping[str, Any]]:
    """The content of a message: a text alone, or files and then the text."""
    parts = [one.part() for one in media]
    return [*parts, {"type": "text", "text": text}] if parts else text


def attachments(options: dict[str, Any]) -> list[Attachment]:
    """The files among the options of a request, which are taken out of them. Raises MediaError."""
    return [
        Attachment.read(modality, path)
        for option, (modality, _) in FLAGS.items()
        for path in options.pop(option, None) or ()
    ]


def check_flags(options: Mapping[str, Any]) -> None:
    """Look at the files behind ``--image`` and ``--audio``. Raises MediaError."""
    for option, (_, flag) in FLAGS.items():
        for path in options.get(option, ()):
            check_file(path, f"{flag} ")


def check_file(path: str, flag: str = "") -> None:
    """Refuse what cannot be read as a file, without opening it. Raises MediaError."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise MediaError(f"{flag}{path or 'a file without a name'}: {_reason(path, error)}", param=path) from error
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise MediaError(f"{flag}{path} is {kind}", param=path, hint="name a file")
    if not os.access(path, os.R_OK):
        raise MediaError(f"{flag}{path} may not be read by this user", param=path)


@contextmanager
def naming(files: Mapping[str, str]) -> Iterator[None]:
    """Errors about sounds and pictures name their files; ``files``: path by what a request calls it, images[0]."""
    try:
        yield
    except MediaError as error:
        path = files.get(error.param or "")
        if path is None:
            raise
        rest = error.message.removeprefix(error.param or "")
        shown = path + (f": {rest}" if rest == error.message else rest)
        raise MediaError(shown, param=error.param, hint=error.hint) from error


def names_in(spec: PackageSpec, options: Mapping[str, Any]) -> dict[str, str]:
    """``files`` of ``naming`` for the options of a request."""
    found: dict[str, str] = {}
    for option, (modality, _) in FLAGS.items():
        paths = [str(path) for path in options.get(option) or ()]
        for name in (name for name, declared in spec.inputs.items() if declared.modality == modality and paths):
            found |= {name: paths[0], **{f"{name}[{index}]": path for index, path in enumerate(paths)}}
    return found


def _reason(path: str, error: OSError | ValueError) -> str:
    if _ADDRESS.match(path):
        return "an address is not opened; download it first"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

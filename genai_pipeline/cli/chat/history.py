"""What was typed in earlier chats, in a file: one JSON text per line, so that an entry may have several lines.

The file is the user's alone. It is cut to its newest entries when it is opened with many more than that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_ENTRIES: Final = 5000
FILE: Final = "chat_history.jsonl"


class History:
    """Entries of one file, oldest first. A file that cannot be written is told of once; entries last for this run."""

    def __init__(self, path: Path | None, complain: Callable[[str], None]) -> None:
        """``path`` None: nothing is kept."""
        self._path = path
        self._complain = complain
        self._read()

    @property
    def entries(self) -> Sequence[str]:
        """What there is to go back to."""
        return self._entries

    def add(self, text: str) -> None:
        """Remember something, unless it is what was typed just before."""
        if self._entries[-1:] == [text]:
            return
        self._entries.append(text)
        if self._path is None:
            return
        try:
            _write(self._path, os.O_APPEND, [text])
        except OSError as error:
            self._give_up(error)

    def _read(self) -> None:
        self._entries: list[str] = []
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
                self._entries = [entry for line in lines if isinstance(entry := _entry(line), str)]
            if len(self._entries) > 2 * MAX_ENTRIES:
                self._cut(self._path)
        except OSError as error:
            self._give_up(error)

    def _cut(self, path: Path) -> None:
        """Replace the file by one with its newest entries, whole or not at all."""
        self._entries = self._entries[-MAX_ENTRIES:]
        shorter = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            _write(shorter, os.O_TRUNC, self._entries)
            shorter.replace(path)
        finally:
            shorter.unlink(missing_ok=True)

    def _give_up(self, error: OSError) -> None:
        self._complain(f"note: what you type is not kept: {self._path}: {error.strerror}")
        self._path = None


def _write(path: Path, mode: int, entries: Sequence[str]) -> None:
    """In one call of the system, so that chats of several terminals do not mix their lines."""
    content = "".join(f"{json.dumps(entry)}\n" for entry in entries).encode()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600)
    try:
        os.write(file, content)
    finally:
        os.close(file)


def _entry(line: str) -> object:
    with suppress(ValueError, RecursionError):  # a line that was cut off when a machine went down
        return json.loads(line)
    return None

"""From a pronunciation dictionary in the form of Carnegie Mellon's to a JSON object from word to phonemes.

A line has a word, white space, and its phonemes; ``word(2)`` is another way to speak a word, ``#`` and ``;;;`` begin a
comment. The first way of each word is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.package_writer import write_json

DICTIONARY_FILE = "dictionary.json"


def write_dictionary(source: Path, folder: Path) -> None:
    """Write ``dictionary.json``. Raises ImportModelError for a line that is no entry."""
    write_json(folder / DICTIONARY_FILE, read_dictionary(source))


def read_dictionary(source: Path) -> dict[str, str]:
    """The phonemes of each word, with spaces between."""
    found: dict[str, str] = {}
    for word, phonemes in _entries(source):
        found.setdefault(word, phonemes)
    return found


def _entries(source: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry or entry.startswith(";;;"):
            continue
        word, *phonemes = entry.split()
        if not phonemes:
            raise ImportModelError(f"{source.name}, line {number}: '{entry}' has no phonemes")
        yield word.partition("(")[0].lower(), " ".join(phonemes)

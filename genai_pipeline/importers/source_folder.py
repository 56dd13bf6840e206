"""A folder with a model of another format: config files read within bounds, ONNX files found, nothing outside opened.

Files follow the rule of ``metadata.paths``: inside the folder with links resolved, or links of a hub cache into its own
blobs. Weights are linked into a package, not copied, where the file system can.
"""

from __future__ import annotations

import difflib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from genai_pipeline.errors import GraphFileError, ImportModelError, PackagePathError
from genai_pipeline.graph.external_data import scan_external_data
from genai_pipeline.graph.onnx_file import read_signature
from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.metadata.paths import resolve_inside
from genai_pipeline.problems import nearest, one_of

CONFIG_BYTES = 16 * 2**20  # tokenizer_config.json of large vocabularies takes a few MB
_OWN_MEANING = frozenset(  # no misspellings of each other
    {
        *("config.json", "generation_config.json", "genai_config.json", "preprocessor_config.json"),
        *("processor_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
        *("chat_template.json", "added_tokens.json", "vocab.json", "vocabulary.json", "import_report.json"),
    }
)
_ALIKE = 0.8  # of a file's ending and a misspelling of it
_DEPTH = 6  # folders that are looked into for ONNX files


class SourceFolder:
    """The files of one model; names are relative to the folder, with ``/`` between parts."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            what = "is no folder" if path.exists() else "does not exist"
            raise ImportModelError(f"{path}: {what}", hint="give the folder that holds the model's files")
        self.path = path

    def has(self, name: str) -> bool:
        """Whether there is such a file (it may still be one that is refused)."""
        return (self.path / name).exists()

    def find(self, *names: str) -> str | None:
        """The first of the names that is there."""
        return next((name for name in names if self.has(name)), None)

    def file(self, name: str) -> Path:
        """The resolved regular file. Raises ImportModelError when it is missing or lies outside."""
        try:
            return resolve_inside(self.path, name)
        except PackagePathError as error:
            raise ImportModelError(f"{self.path}: {error.message}", hint=error.hint) from error

    def need(self, name: str, purpose: str) -> Path:
        """Like ``file``; the error says what the file is needed for."""
        if not self.has(name):
            raise ImportModelError(f"{self.path}: the file '{name}' is missing: {purpose}", hint=self._instead(name))
        return self.file(name)

    def _instead(self, name: str) -> str:
        """A hint about a missing file: one whose name may be meant for it, else what is there."""
        wanted = Path(name)
        there = [entry.name for entry in (self.path / name).parent.glob("*") if not entry.name.startswith(".")]
        stems = {Path(other).stem: other for other in there if _may_stand_for(other, wanted.suffix)}
        hint = nearest(wanted.stem, stems)
        meant = next((other for stem, other in stems.items() if f"'{stem}'" in hint), None)
        return f"did you mean '{meant}'?" if meant else f"there are {one_of(there)}" if there else "the folder is empty"

    def text(self, name: str) -> str:
        """The UTF-8 text of a file of at most 16 MB."""
        file = self.file(name)
        size = file.stat().st_size
        if size > CONFIG_BYTES:
            raise ImportModelError(f"{name}: has {size} bytes; a config file may have {CONFIG_BYTES}")
        try:
            return file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ImportModelError(f"{name}: is not UTF-8 text: byte {error.start}") from error

    def json(self, name: str) -> ConfigNode:
        """The mapping in a JSON file; duplicate keys, NaN and nesting without end are errors."""
        try:
            value = json.loads(self.text(name), object_pairs_hook=_unique, parse_constant=_no_constant)
        except RecursionError as error:
            raise ImportModelError(f"{name}: is nested too deeply") from error
        except json.JSONDecodeError as error:
            raise ImportModelError(
                f"{name}: is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
            ) from error
        except ValueError as error:
            raise ImportModelError(f"{name}: {error}") from error
        return ConfigNode(name, "", value).checked(isinstance(value, dict), "a mapping")

    def optional_json(self, name: str) -> ConfigNode:
        """Like ``json``; an empty mapping when the file is absent."""
        return self.json(name) if self.has(name) else ConfigNode(name, "", {})

    def onnx_files(self) -> tuple[str, ...]:
        """Names of all ONNX files, those of inner folders too, sorted; links to folders are not followed."""
        found = []
        for folder, inner, files in os.walk(self.path):
            relative = Path(folder).relative_to(self.path)
            if len(relative.parts) >= _DEPTH:
                inner.clear()
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            found += [(relative / name).as_posix() for name in files if name.endswith(".onnx")]
        return tuple(sorted(found))

    def top_files(self) -> tuple[str, ...]:
        """Names of the files in the folder itself, sorted; hidden ones are left out."""
        return tuple(sorted(p.name for p in self.path.iterdir() if p.is_file() and not p.name.startswith(".")))

    def signature(self, name: str) -> GraphSignature:
        """Ports of an ONNX file; its weights stay where they are. Raises ImportModelError."""
        self.need(name, "it is one of the model's graphs")
        try:
            return read_signature(self.path / name, self.path)
        except GraphFileError as error:
            raise ImportModelError(error.message, hint=error.hint) from error

    def weights(self, name: str) -> tuple[str, ...]:
        """Names of the files of weights of an ONNX file, checked and not opened. Raises ImportModelError."""
        self.need(name, "it is one of the model's graphs")
        try:
            found = scan_external_data(self.path.resolve() / name, self.path.resolve())
        except GraphFileError as error:
            raise ImportModelError(error.message, hint=error.hint) from error
        for fault in found.faults:
            raise ImportModelError(f"{name}: {fault.message}", hint=fault.hint)
        return tuple((Path(name).parent / location).as_posix() for location in found.files)

    def link_graph(self, name: str, folder: Path) -> None:
        """Puts an ONNX file and its weights into a package folder, under the same names."""
        self.link((name, *self.weights(name)), folder)

    def link(self, names: Iterable[str], folder: Path) -> None:
        """Puts files into a package folder under the same names; one that is there already stays."""
        for name in dict.fromkeys(names):
            link_file(self.file(name), folder / name)


def _may_stand_for(other: str, suffix: str) -> bool:
    """Whether a file's name may be meant for another with that suffix."""
    return other not in _OWN_MEANING and difflib.SequenceMatcher(None, Path(other).suffix, suffix).ratio() > _ALIKE


def link_file(source: Path, target: Path) -> None:
    """Makes ``target`` the same file as ``source`` by a hard link; copies where the file system cannot.

    A symbolic link would lead out of the package, which its reader refuses.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    real = source.resolve()
    try:
        os.link(real, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(real, target)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key '{key}' is there twice")
        found[key] = value
    return found


def _no_constant(text: str) -> float:
    raise ValueError(f"the number {text} is not allowed in JSON")

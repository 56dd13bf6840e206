"""Tokens that an answer may not have, or not begin with: ``suppress_tokens`` and ``begin_suppress_tokens``.

They stand in ``search``, or in generation_config.json beside it, where models of speech are published with them.
onnxruntime-genai 0.18 knows neither: it refuses the keys in ``search`` and does not read the other file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.package_writer import wrapped
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.texts import token_texts

GENERATION: Final = "generation_config.json"
_KEYS: Final = {"suppress_tokens": "suppress", "begin_suppress_tokens": "begin_suppress"}


@dataclass(frozen=True, slots=True)
class NeverChosen:
    """Ids by field of a decode loop; a field without ids is left out."""

    fields: dict[str, tuple[int, ...]]

    def lines(self) -> Iterator[str]:
        """The fields of a loop, each a list over several lines where it is long."""
        for name, ids in self.fields.items():
            yield f"{name}:"
            yield from wrapped(ids, "  ")


def read_never_chosen(source: SourceFolder, config: ConfigNode, report: ImportReport) -> NeverChosen:
    """Reads and reports them; -1 stands for none. An id without a token is refused."""
    fields = {}
    search, beside = config.mapping("search"), source.optional_json(GENERATION)
    for key, name in _KEYS.items():
        found = next((node for node in (search, beside) if key in node), None)
        if found is None:
            continue
        ids = tuple(dict.fromkeys(index for index in found.integers(key) if index != -1))
        _check(source, found, key, ids, report)
        if not ids:
            report.dropped(found.file, found.at(key), "it names no token")
            continue
        report.mapped(found.file, found.at(key), f"stages.generate.{name}")
        fields[name] = ids
        if found is search and key in beside:
            report.dropped(beside.file, key, f"{search.file} comes first")
    if any(row.file == GENERATION for row in report.rows):
        report.dropped(GENERATION, "", "nothing else of it is read, as there")
    return NeverChosen(fields)


def _check(source: SourceFolder, node: ConfigNode, key: str, ids: tuple[int, ...], report: ImportReport) -> None:
    known = token_texts(source)
    missing = sorted(index for index in ids if index not in known)
    if missing:
        shown = ", ".join(map(str, missing))
        report.refused(node.file, node.at(key), f"names {shown}: the tokenizer has no such tokens")

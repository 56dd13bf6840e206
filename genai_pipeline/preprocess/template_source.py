"""Where a package's chat template comes from.

The first that is there wins: the file that ``chat_template`` of the metadata names; ``chat_template.jinja`` beside
the tokenizer; ``chat_template`` in tokenizer_config.json; ``chat_template`` in chat_template.json. The last two may
hold a list of named templates: ``default`` is used, and ``tool_use`` when a request gives tools.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.metadata.paths import check_inside
from genai_pipeline.preprocess.special_tokens import below
from genai_pipeline.preprocess.token_files import TOKENIZER_CONFIG, beside, place_in, read_json_object
from genai_pipeline.problems import Location, Problems

_BESIDE = "chat_template.jinja"
_JSON_FILES = (TOKENIZER_CONFIG, "chat_template.json")


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """The text of a chat template and where it was found; ``tool_use`` replaces it when there are tools."""

    text: str
    at: Location
    own_file: bool = True  # whether lines of the template are lines of the file
    tool_use: str | None = None

    @property
    def title(self) -> str:
        """What lines of the template are lines of, as messages say it."""
        return self.at.file if self.own_file else f"the template in {self.at.file}"

    def place(self, line: int) -> Location:
        """The place of a line of the template."""
        return Location(self.at.file, line, 1) if self.own_file else self.at


def find_template(root: Path, spec: TokenizerSpec, problems: Problems) -> TemplateSource | None:
    """The chat template of a declared tokenizer, or None when there is none; unusable files become problems."""
    if spec.chat_template is not None:
        return _from_text_file(root, spec, spec.chat_template, below(spec.at, "chat_template"), problems)
    own = beside(spec.file, _BESIDE)
    if os.path.lexists(root / own):
        return _from_text_file(root, spec, own, place_in(spec.at, own), problems)
    for name in _JSON_FILES:
        relative = beside(spec.file, name)
        # Problems of tokenizer_config.json itself are reported where its tokens are read.
        silent = Problems() if name == TOKENIZER_CONFIG else problems
        declared = (read_json_object(root, relative, spec.at, silent) or {}).get("chat_template")
        if declared is not None:
            return _from_json(replace(place_in(spec.at, relative), path="chat_template"), declared, problems)
    return None


def _from_text_file(
    root: Path, spec: TokenizerSpec, relative: str, path_at: Location, problems: Problems
) -> TemplateSource | None:
    at = place_in(spec.at, relative)
    file = check_inside(root, relative, path_at, problems)
    if file is None:
        return None
    try:
        return TemplateSource(file.read_text(encoding="utf-8"), at)
    except (OSError, UnicodeDecodeError) as error:
        problems.error(
            at, "template.file", f"chat template {relative} cannot be read: {error}", "it must be UTF-8 text"
        )
        return None


def _from_json(at: Location, declared: Any, problems: Problems) -> TemplateSource | None:
    named = _named(declared)
    if named is None:
        problems.error(
            at,
            "template.file",
            f"chat_template in {Path(at.file).name} is neither a text nor a list of named templates",
            "each entry of a list needs 'name' and 'template'",
        )
        return None
    if "default" not in named:
        problems.error(
            at,
            "template.file",
            f"{Path(at.file).name} has no chat template named 'default'",
            f"it has: {', '.join(named)}",
        )
        return None
    return TemplateSource(named["default"], at, own_file=False, tool_use=named.get("tool_use"))


def _named(declared: Any) -> dict[str, str] | None:
    """Templates by name; a single text is the default one."""
    if isinstance(declared, str):
        return {"default": declared}
    if not isinstance(declared, list):
        return None
    named = {}
    for entry in declared:
        if not isinstance(entry, dict):
            return None
        name, text = entry.get("name"), entry.get("template")
        if not isinstance(name, str) or not isinstance(text, str):
            return None
        named[name] = text
    return named

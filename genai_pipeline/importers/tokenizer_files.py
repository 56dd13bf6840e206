"""The tokenizer files beside a model: special tokens by id, and the chat template in the order transformers has.

Chat template: ``chat_template.jinja``, then ``chat_template.json``, then ``chat_template`` of tokenizer_config.json (a
text, or a list of named ones of which ``default`` counts). The first that is there is taken; the others are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.end_tokens import added_tokens
from genai_pipeline.importers.package_writer import write_text
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
TEMPLATE = "chat_template.jinja"
TEMPLATE_JSON = "chat_template.json"
_TEMPLATE_KEY = "chat_template"
_ENTRY = "tokenizer"  # of the metadata


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a package needs of them. ``template`` is the text of the chat template; None: there is none."""

    template: str | None
    bos: str | None  # as tokenizer_config.json names it
    eos: str | None
    pad: str | None
    add_bos: bool | None  # None: what tokenizer.json says
    texts: dict[int, str] = field(default_factory=dict)  # added tokens by id
    ends: tuple[int, ...] = ()  # as generation_config.json has them
    control: dict[str, int] = field(default_factory=dict)  # control tokens of tokenizer.json, by text

    def token(self, index: int) -> str | int:
        """The token's text where it is known, else its id: a package may name it either way."""
        return self.texts.get(index, index)

    def end_tokens(self, ids: Sequence[int]) -> list[str | int]:
        """End tokens in the order given; the one that templates see as ``eos_token`` comes first."""
        tokens = [self.token(index) for index in dict.fromkeys(ids)]
        return sorted(tokens, key=lambda token: token != self.eos)

    def fields(self, end_ids: Sequence[int], pad_id: int | None) -> dict[str, Any]:
        """The ``tokenizer`` entry of a package."""
        fields: dict[str, Any] = {"file": TOKENIZER}
        if self.template is not None:
            fields["chat_template"] = TEMPLATE
        if self.bos is not None:
            fields["bos"] = self.bos
        if self.add_bos is not None and self.bos is not None:
            fields["add_bos"] = self.add_bos
        if end_ids:
            fields["eos"] = self.end_tokens(end_ids)
        if pad_id is not None:
            fields["pad"] = self.token(pad_id)
        return fields

    def write(self, source: SourceFolder, folder: Path) -> None:
        """Puts the tokenizer and the template into a package folder."""
        source.link((TOKENIZER,), folder)
        if self.template is not None:
            write_text(folder / TEMPLATE, self.template)


def read_tokenizer_files(source: SourceFolder, report: ImportReport) -> TokenizerFiles:
    """Reads and reports them. Raises ImportModelError when tokenizer.json is missing, naming it."""
    source.need(TOKENIZER, "it turns text into tokens (other forms of tokenizer are not read)")
    report.mapped(TOKENIZER, "", f"{_ENTRY}.file")
    config = source.optional_json(TOKENIZER_CONFIG)
    template = _template(source, config, report)
    add_bos = config.boolean("add_bos_token", False) if "add_bos_token" in config else None
    if add_bos is not None:
        report.mapped(TOKENIZER_CONFIG, "add_bos_token", f"{_ENTRY}.add_bos")
    bos, eos, pad = (_text(config, f"{name}_token") for name in ("bos", "eos", "pad"))
    for name, text in (("bos", bos), ("eos", eos), ("pad", pad)):
        if text is not None:
            report.mapped(TOKENIZER_CONFIG, f"{name}_token", f"{_ENTRY}.{name}")
    if config.keys:
        report.mapped(TOKENIZER_CONFIG, "added_tokens_decoder", "the texts of end tokens in the metadata")
        report.dropped(TOKENIZER_CONFIG, "", "everything else of it is in tokenizer.json, or nothing depends on it")
    ends = source.optional_json(GENERATION_CONFIG).integers("eos_token_id")
    control = dict(added_tokens(source, special=True))
    return TokenizerFiles(template, bos, eos, pad, add_bos, dict(_added(config)), ends, control)


def _template(source: SourceFolder, config: ConfigNode, report: ImportReport) -> str | None:
    found = list(_templates(source, config))
    if not found:
        report.dropped(TOKENIZER_CONFIG, _TEMPLATE_KEY, "there is no chat template: prompts go in as they are written")
        return None
    (file, key, text), *others = found
    report.mapped(file, key, f"{_ENTRY}.chat_template")
    for name, other, unused in others:
        same = "the same" if unused == text else "another one, which does not count"
        report.dropped(name, other, f"{file} comes first; this is {same}")
    return text


def _templates(source: SourceFolder, config: ConfigNode) -> Iterator[tuple[str, str, str]]:
    """File, key and text of each template, in the order that counts."""
    if source.has(TEMPLATE):
        yield TEMPLATE, "", source.text(TEMPLATE)
    if source.has(TEMPLATE_JSON):
        yield TEMPLATE_JSON, _TEMPLATE_KEY, source.json(TEMPLATE_JSON).text(_TEMPLATE_KEY)
    found = config.get(_TEMPLATE_KEY)
    if found is None:
        return
    if not isinstance(found.value, list):
        yield TOKENIZER_CONFIG, _TEMPLATE_KEY, config.text(_TEMPLATE_KEY)
        return
    named = {item.text("name"): item.text("template") for item in found.items()}
    if "default" not in named:
        raise ImportModelError(
            f"{TOKENIZER_CONFIG}: {_TEMPLATE_KEY} has templates named {', '.join(named) or '(none)'}, none 'default'",
            hint=f"put the one to use into {TEMPLATE} beside it",
        )
    yield TOKENIZER_CONFIG, _TEMPLATE_KEY, named["default"]


def _text(config: ConfigNode, key: str) -> str | None:
    """A special token: a text, or a mapping with ``content``."""
    found = config.get(key)
    if found is None:
        return None
    return found.text("content") if isinstance(found.value, dict) else config.text(key)


def _added(config: ConfigNode) -> Iterator[tuple[int, str]]:
    for item in config.mapping("added_tokens_decoder").items():
        index = item.path.rpartition(".")[2]
        item.checked(index.isdecimal(), "an id as its key")
        yield int(index), item.text("content")

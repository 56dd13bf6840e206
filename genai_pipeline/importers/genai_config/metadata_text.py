"""The inference metadata of an imported onnxruntime-genai folder, as short YAML text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genai_pipeline.importers.package_writer import flow


@dataclass(frozen=True, slots=True)
class ComponentText:
    """A component as it is written: ``kv`` and ``session`` may be empty."""

    name: str
    model: str
    kv: Sequence[Mapping[str, Any]]
    session: Mapping[str, Any]

    def fields(self) -> dict[str, Any]:
        """The entry under ``components``, as a mapping."""
        kv = [dict(entry) for entry in self.kv]
        found: dict[str, Any] = {
            "model": self.model,
            "kv": kv[0] if len(kv) == 1 else kv,
            "session": dict(self.session),
        }
        return {key: value for key, value in found.items() if value}

    def lines(self) -> Iterator[str]:
        """The entry under ``components``."""
        yield f"  {self.name}:"
        yield f"    model: {flow(self.model)}"
        if len(self.kv) == 1:
            yield "    kv:"
            yield from (f"      {key}: {flow(value)}" for key, value in self.kv[0].items())
        elif self.kv:
            yield "    kv:"
            yield from (f"      - {flow(dict(entry))}" for entry in self.kv)
        if self.session:
            yield f"    session: {flow(dict(self.session))}"


def head_lines(name: str, summary: str) -> Iterator[str]:
    """Where the package comes from, version, name and summary."""
    yield "# Imported from a folder made for onnxruntime-genai; import_report.json says what became of each key."
    yield 'schema_version: "1"'
    yield f"name: {flow(name)}"
    yield f"summary: {flow(summary)}"


def tail_lines(defaults: Mapping[str, Any], context_length: int) -> Iterator[str]:
    """Generation defaults and limits."""
    if defaults:
        yield f"generation: {{defaults: {flow(dict(defaults))}}}"
    yield f"limits: {{context_length: {context_length}}}"
    yield ""


def text_decoder(
    head: Iterator[str],
    tokenizer: Mapping[str, Any],
    components: Sequence[ComponentText],
    body: Sequence[Mapping[str, Any]],
    logits: str,
    tail: Iterator[str],
) -> str:
    """A text model: one loop whose body has the given stages."""
    return "\n".join(
        [
            *head,
            "inputs:",
            "  prompt: {modality: text}",
            "outputs:",
            "  text: {modality: text, value: generate.text}",
            f"tokenizer: {flow(dict(tokenizer))}",
            "components:",
            *(line for component in components for line in component.lines()),
            "stages:",
            "  - id: generate",
            "    loop: decode",
            "    prompt: prompt.tokens",
            "    body:",
            *(line for stage in body for line in stage_lines(stage, "      ")),
            f"    logits: {logits}",
            *tail,
        ]
    )


def stage_lines(stage: Mapping[str, Any], indent: str) -> Iterator[str]:
    """A run stage, a line for each field."""
    for index, (key, value) in enumerate(stage.items()):
        lead = "- " if index == 0 else "  "
        yield f"{indent}{lead}{key}: {plain(value)}"


def plain(value: Any) -> str:
    """Like ``flow``, with value names unquoted: bindings read as the examples write them."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow_key(key)}: {plain(item)}" for key, item in value.items()) + "}"
    return value if isinstance(value, str) else flow(value)


def flow_key(key: str) -> str:
    """A port name as a YAML key: quoted unless it is a plain word."""
    return key if key.replace("_", "a").replace(".", "a").isalnum() and not key[0].isdigit() else flow(key)

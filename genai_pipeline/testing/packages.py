"""Packages on disk whose answers are arithmetic: graphs, tokenizer, template and metadata in one call.

    package = write_package(tmp_path, "kv", update="append")
    prompt = package.vocabulary.chat_prompt(("user", "hello"))
    assert list(pipe.generate(tokens=prompt).tokens) == package.answer(prompt, 16)

Every option has a default that works. ``edit`` receives the metadata as plain dicts and lists before it is written,
so that a test can change or break one thing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.kinds import KINDS, Twin
from genai_pipeline.testing.vocabulary import CHATML, Vocabulary

METADATA_FILE = "inference_metadata.yaml"
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # to readers of YAML 1.1 or 1.2
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


@dataclass(frozen=True)
class TinyPackage(os.PathLike[str]):
    """A package that was written, with the twin that knows its answers. Usable wherever a path is."""

    path: Path
    vocabulary: Vocabulary
    twin: Twin
    end_ids: tuple[int, ...]
    kind: str
    options: Mapping[str, Any]  # of the kind, as given

    def __fspath__(self) -> str:
        """The package folder."""
        return str(self.path)

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """The first ``count`` greedy tokens after ``prompt``, end tokens included and not minded."""
        return self.twin.expected(prompt, count)

    def answer(self, prompt: Sequence[int], max_new_tokens: int) -> list[int]:
        """What ``Result.tokens`` must be: the expected tokens before the first end token."""
        tokens = self.expected(prompt, max_new_tokens)
        ends = [index for index, token in enumerate(tokens) if token in self.end_ids]
        return tokens[: ends[0]] if ends else tokens

    def answer_text(self, prompt: Sequence[int], max_new_tokens: int) -> str:
        """What ``Result.text`` must be."""
        return self.vocabulary.decode(self.answer(prompt, max_new_tokens))


def write_package(
    folder: str | os.PathLike[str],
    kind: str = "kv",
    *,
    name: str | None = None,
    context_length: int = 256,
    eos: Sequence[str | int] = ("<|im_end|>", "</s>"),
    chat_template: str | None = CHATML,
    add_bos: bool = False,
    generation: Mapping[str, Any] | None = None,
    external_data: bool = False,
    edit: Callable[[dict[str, Any]], object] | None = None,
    **options: Any,
) -> TinyPackage:
    """Write a package of one of ``KINDS`` into ``folder`` (made if absent) and return it with its twin.

    ``options`` are the fields of ``KindOptions``: update, positions, dtypes, script, vocabulary size and so on.
    ``external_data`` puts weights into ``<graph>.onnx.data``. Raises TypeError for an unknown option and ValueError
    for an unknown kind or an option that the kind has no use for.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}: one of {', '.join(sorted(KINDS))}")
    content = KINDS[kind].content(options)
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    for file, graph in content.graphs.items():
        write_graph(root / file, graph, external_data=external_data)
    content.vocabulary.write(root / "tokenizer.json", add_bos=add_bos)
    tokenizer: dict[str, Any] = {"file": "tokenizer.json"}
    if chat_template is not None:
        (root / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
        tokenizer["chat_template"] = "chat_template.jinja"
    metadata: dict[str, Any] = {
        "schema_version": "1",
        "name": name or f"tiny-{kind}",
        "inputs": {"prompt": {"modality": "text"}},
        "outputs": {"text": {"modality": "text", "value": "generate.text"}},
        "tokenizer": {**tokenizer, "eos": list(eos)},
        "components": content.components,
        "stages": content.stages,
        **({"generation": generation} if generation is not None else {}),
        "limits": {"context_length": context_length},
    }
    if edit is not None:
        edit(metadata)
    (root / METADATA_FILE).write_text(metadata_text(metadata), encoding="utf-8")
    ends = tuple(content.vocabulary.id_list(eos))
    return TinyPackage(root, content.vocabulary, content.twin, ends, kind, options)


def write_draft(folder: str | os.PathLike[str], package: TinyPackage, **changes: Any) -> TinyPackage:
    """Write a package that can draft for ``package``: the same kind and tokens, with some options changed.

    ``layers=1`` leaves out layers of a decoder, so that it seldom agrees; another ``script`` agrees where the two are
    the same; without changes it always agrees. Raises ValueError when the change gives it other tokens.
    """
    draft = write_package(folder, package.kind, name=f"tiny-{package.kind}-draft", **{**package.options, **changes})
    if draft.vocabulary.tokens != package.vocabulary.tokens:
        raise ValueError("this draft would have other tokens: give a script of the same words")
    return draft


def write_graph(path: Path, graph: GraphBuilder, *, external_data: bool = False) -> Path:
    """Save a graph, with its weights in ``<file>.data`` beside it if asked for."""
    return graph.save(path, f"{path.name}.data" if external_data else None)


def metadata_text(value: Mapping[str, Any]) -> str:
    """Nested dicts and lists as YAML: blocks for mappings and for lists of mappings, JSON for the rest."""
    return "\n".join(_block(value, 0)) + "\n"


def _block(value: Any, indent: int) -> list[str]:
    """The lines of one mapping or list of mappings."""
    pad = " " * indent
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            head = f"{pad}{_scalar(key)}:"
            nested = _is_block(item)
            lines += [head, *_block(item, indent + 2)] if nested else [f"{head} {_inline(item)}"]
        return lines
    for item in value:
        first, *rest = _block(item, indent + 2)
        lines += [f"{pad}- {first.lstrip()}", *rest]
    return lines


def _is_block(value: Any) -> bool:
    """Whether a value is written over several lines: a mapping of more than scalars, or a list of mappings."""
    if isinstance(value, Mapping):
        return any(_is_block(item) or isinstance(item, Mapping) for item in value.values()) or len(value) > 3
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) and item for item in value)


def _inline(value: Any) -> str:
    """A scalar, list or small mapping on one line, in YAML's flow style."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    """A scalar: strings that no YAML reader can take for anything else are written without quotes."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)

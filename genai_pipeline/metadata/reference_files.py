"""Checks that every file the document names exists, is a regular file and lies inside the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from genai_pipeline.metadata.build_values import listed, named
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.paths import check_inside
from genai_pipeline.problems import Problems

DESCRIBED: Final = frozenset({".npy", ".npz", ".safetensors", ".json"})  # data files that say their dtype and shape
KEYED: Final = frozenset({".npz", ".safetensors"})  # data files that hold several tensors


def check_files(root: Node, folder: Path, problems: Problems) -> None:
    """Record every file that may not be opened, and raw data without dtype and shape."""
    for node in named_files(root):
        check_inside(folder, str(node.value), node.at, problems)
    for _, node in named(root.get("data")):
        _check_data(node, problems)


def named_files(root: Node) -> Iterator[Node]:
    """Every node of a document that names a file of the package."""
    tokenizers = [node for _, node in named(root.get("tokenizers"))]
    single = root.get("tokenizer")
    for node in [*tokenizers, *([single] if single is not None else [])]:
        yield from _at(node, "file", "chat_template")
    for _, node in named(root.get("data")):
        yield from _at(node, "file")
        yield from listed(node.get("files"))
    for _, node in named(root.get("components")):
        yield from _models(node)
    for node in listed(root.get("adapters")):
        yield from _at(node, "file")


def _at(node: Node, *keys: str) -> Iterator[Node]:
    for key in keys:
        child = node.get(key)
        if child is not None:
            yield child


def _models(component: Node) -> Iterator[Node]:
    model = component.get("model")
    if model is not None:
        yield from _at(model, "first", "later") if isinstance(model.value, dict) else (model,)
    for variant in listed(component.get("variants")):
        yield from _at(variant, "model")


def _check_data(node: Node, problems: Problems) -> None:
    """Raw files need dtype and shape; only files with several tensors take a key."""
    for file in (*_at(node, "file"), *listed(node.get("files"))):
        ending = PurePosixPath(str(file.value)).suffix.lower()
        missing = [key for key in ("dtype", "shape") if node.get(key) is None]
        if ending not in DESCRIBED and missing:
            message = f"raw data needs {' and '.join(missing)}"
            hint = "give both, or use npy, npz, safetensors or json"
            problems.error(file.at, "reference.raw_data", message, hint)
        elif ending in KEYED and node.get("key") is None:
            message = f"a {ending[1:]} file holds several tensors; key says which"
            problems.error(file.at, "reference.data_key", message, "add key: NAME")

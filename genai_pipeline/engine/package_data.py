"""The tensors of a package (``data:``): read once when it is loaded, then values of every request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import PackageError
from genai_pipeline.metadata.model import DataSpec, PackageSpec
from genai_pipeline.types import numpy_dtype


def load_data(spec: PackageSpec) -> dict[str, Any]:
    """Every entry by value key: arrays, lists of them, and what json files hold. Raises PackageError."""
    return {f"data.{name}": _entry(spec.root, entry) for name, entry in spec.data.items()}


def _entry(root: Path, entry: DataSpec) -> Any:
    read = [_read(root / file, entry) for file in entry.files]
    return read if entry.is_list or len(read) > 1 else read[0]


def _read(path: Path, entry: DataSpec) -> Any:
    try:
        found = _file(path, entry)
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        hint = "see 'data' in the documentation of the metadata"
        raise PackageError(f"data.{entry.name} cannot be read from {path.name}: {error}", hint=hint) from error
    if isinstance(found, np.ndarray):
        return _as_declared(found, path, entry)
    return found


def _file(path: Path, entry: DataSpec) -> Any:
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return archive[_key(entry, archive.files)]
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        tensors = load_file(path)
        return tensors[_key(entry, list(tensors))]
    if path.suffix == ".json":
        found = json.loads(path.read_text("utf-8"))
        found = found if entry.key is None else found[entry.key]
        return found if entry.dtype is None else np.asarray(found, numpy_dtype(entry.dtype))
    assert entry.dtype is not None, "checked: raw files need a dtype"
    return np.fromfile(path, numpy_dtype(entry.dtype)).reshape(entry.shape or (-1,))


def _key(entry: DataSpec, names: list[str]) -> str:
    """The name of the tensor inside a file of several."""
    if entry.key is not None:
        return entry.key
    if len(names) != 1:
        raise ValueError(f"it holds {len(names)} tensors; say which one with key")
    return names[0]


def _as_declared(array: NDArray[Any], path: Path, entry: DataSpec) -> NDArray[Any]:
    if entry.shape is not None and array.shape != entry.shape:
        message = f"data.{entry.name} in {path.name} has shape {list(array.shape)}, not {list(entry.shape)}"
        raise PackageError(message, hint="the file and its declaration disagree")
    if entry.dtype is not None and array.dtype != numpy_dtype(entry.dtype):
        message = f"data.{entry.name} in {path.name} is {array.dtype}, not {entry.dtype}"
        raise PackageError(message, hint="the file and its declaration disagree")
    array.setflags(write=False)
    return array

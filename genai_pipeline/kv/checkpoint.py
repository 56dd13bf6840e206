"""Checkpoint files: tokens and state of one sequence as one safetensors file, for another process to go on from.

The file says which package it belongs to (``identity``) and is refused for any other. A digest is over all it holds,
so damage is told apart from a state that merely looks odd. Reading needs as much memory as the state takes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import CheckpointError
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.pool import SavedTokens
from genai_pipeline.kv.saved import SavedShape
from genai_pipeline.types import numpy_dtype

FORMAT = "genai_pipeline checkpoint"
VERSION = "1"
MAX_HEADER_BYTES = 16 * 2**20
_TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A sequence as it was: the state covers the first ``num_computed`` of its tokens."""

    tokens: tuple[int, ...]
    num_computed: int
    saved: SavedTokens
    extra: Mapping[str, str]


def write_checkpoint(
    path: Path,
    tokens: Sequence[int],
    saved: SavedTokens,
    identity: Mapping[str, str],
    extra: Mapping[str, str],
    *,
    num_computed: int | None = None,
) -> None:
    """Write a file, at once and as a whole; ``num_computed`` None: the state covers all tokens. Raises CheckpointError.

    ``identity`` says what must be equal for the state to make sense (name of the package, digest of its files);
    ``extra`` is the caller's own.
    """
    arrays = {_TOKENS: np.asarray(tokens, np.int64)} | dict(_named(saved))
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "identity": json.dumps(dict(identity), sort_keys=True),
        "extra": json.dumps(dict(extra), sort_keys=True),
        "num_computed": str(len(tokens) if num_computed is None else num_computed),
        "layout": json.dumps({name: [len(entry) for entry in entries] for name, entries in saved.items()}),
        "dtypes": json.dumps({name: array.dtype.name for name, array in arrays.items()}),
    }
    stored = {name: _storable(array) for name, array in arrays.items()}
    _write_atomically(path, stored, metadata | {"digest": _digest(metadata, stored)})


def read_checkpoint(
    path: Path, identity: Mapping[str, str], components: Mapping[str, Sequence[StatePlan]] | None = None
) -> Checkpoint:
    """Read a file of this identity; with ``components``, its state is checked to be theirs. Raises CheckpointError."""
    _check_outside(path)
    metadata, stored = _read(path)
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but not a checkpoint", hint=_WRITE)
    if metadata.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has checkpoint format {metadata.get('version')!r}; this version reads {VERSION!r}",
            hint="use the version of genai_pipeline that wrote it, or write it anew",
        )
    if metadata.pop("digest", None) != _digest(metadata, stored):
        raise _damaged(path, "its content does not match its digest")
    try:
        _check_identity(path, _texts(metadata["identity"]), identity)
        checkpoint = _build(metadata, stored)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError) as error:
        raise _damaged(path, f"its metadata make no sense: {error}") from error
    wrong = None if components is None else SavedShape(components).fault(checkpoint.saved, checkpoint.num_computed)
    if wrong is not None:
        raise CheckpointError(f"{path} does not fit the package: {wrong}", hint="the package has changed; start anew")
    return checkpoint


_WRITE = "name a file that a session's checkpoint wrote"


def _named(saved: SavedTokens) -> Iterator[tuple[str, NDArray[Any]]]:
    for component, entries in saved.items():
        for i, arrays in enumerate(entries):
            for j, array in enumerate(arrays):
                yield f"state/{component}/{i}/{j}", array


def _storable(array: NDArray[Any]) -> NDArray[Any]:
    """The array, or its bytes where numpy itself has no such dtype."""
    whole = np.ascontiguousarray(array).reshape(array.shape)
    return whole[..., None].view(np.uint8) if array.dtype.kind == "V" else whole


def _restored(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return array.view(dtype)[..., 0] if dtype.kind == "V" else array.astype(dtype, casting="no", copy=False)


def _digest(metadata: Mapping[str, str], arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.blake2b(json.dumps(sorted(metadata.items())).encode(), digest_size=32)
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _write_atomically(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        save_file(dict(arrays), temporary, dict(metadata))
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise CheckpointError(
            f"the checkpoint {path} cannot be written: {reason}",
            hint="name a file in a folder that exists, has room, and may be written to",
        ) from error


def _check_outside(path: Path) -> None:
    """Refuse what is no file, and headers that are too large to be one of ours, before anything is parsed."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise CheckpointError(f"{path} is not a regular file", hint=_WRITE)
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} cannot be read: {error.strerror}", hint=_WRITE) from error
    if found.st_size < 8:
        raise _damaged(path, f"it has {found.st_size} bytes")
    if size > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{path} is not a checkpoint: its header would have {size} bytes, more than {MAX_HEADER_BYTES}", hint=_WRITE
        )
    if size + 8 > found.st_size:
        raise _damaged(path, f"it ends after {found.st_size} bytes, within its header")


def _read(path: Path) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            metadata = dict(file.metadata() or {})
            if metadata.get("format") != FORMAT:
                return metadata, {}  # a foreign file may hold dtypes that numpy does not have
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} cannot be read: {error.strerror or error}") from error
    except (SafetensorError, AttributeError, TypeError, ValueError) as error:
        raise _damaged(path, str(error)) from error


def _check_identity(path: Path, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    names = [name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)]
    if names:
        parts = [f"{name} is {found.get(name)!r} there and {expected.get(name)!r} here" for name in names]
        raise CheckpointError(
            f"{path} belongs to another package: {'; '.join(parts)}", hint="load the package that the checkpoint is of"
        )


def _build(metadata: Mapping[str, str], stored: Mapping[str, NDArray[Any]]) -> Checkpoint:
    dtypes = {name: numpy_dtype(dtype) for name, dtype in json.loads(metadata["dtypes"]).items()}
    if set(dtypes) != set(stored):
        raise ValueError("it lists other tensors than it has")
    arrays = {name: _restored(array, dtypes[name]) for name, array in stored.items()}
    saved = {
        component: [[arrays[f"state/{component}/{i}/{j}"] for j in range(count)] for i, count in enumerate(counts)]
        for component, counts in json.loads(metadata["layout"]).items()
    }
    if arrays[_TOKENS].ndim != 1 or arrays[_TOKENS].dtype != np.int64:
        raise ValueError("its tokens are no list of integers")
    tokens = tuple(arrays[_TOKENS].tolist())
    num_computed = int(metadata["num_computed"])
    if not 0 <= num_computed <= len(tokens):
        raise ValueError(f"{num_computed} computed tokens of {len(tokens)}")
    return Checkpoint(tokens, num_computed, saved, _texts(metadata["extra"]))


def _texts(text: str) -> dict[str, str]:
    """A JSON object of texts."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("texts are expected")
    return found


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"the checkpoint {path} is damaged: {why}", hint="use another copy, or start anew")

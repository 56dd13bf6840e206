"""Tensors of a package as their files have them: dtype and shape out of the heads of npy files.

Where the metadata declares neither, this is how the checks of ports know what goes to a port. A file that cannot be
read, and one that is not as declared, is named where the package is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from genai_pipeline.graph.values import Value, data_value
from genai_pipeline.metadata.model import DataSpec, PackageSpec
from genai_pipeline.metadata.paths import check_inside
from genai_pipeline.problems import Problems

_ENDING: Final = ".npy"
_NUMBERS: Final = "biuf"  # kinds of dtypes of numpy: booleans, integers and floats
# Versions 2 and 3 of the format differ in the encoding of names of fields, which tensors do not have.
_HEADS: Final[Mapping[tuple[int, int], Callable[[BinaryIO], tuple[Any, ...]]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,
}


def data_in_files(package: PackageSpec) -> dict[str, Value]:
    """The values ``data.x`` of single npy files, with what the metadata leaves open taken from the file."""
    found = {}
    for spec in package.data.values():
        known = _described(spec, package.root)
        if known is not None:
            value = data_value(known)
            found[value.name] = value
    return found


def _described(spec: DataSpec, root: Path) -> DataSpec | None:
    """The entry with dtype and shape; None for what is no tensor of numbers in one npy file."""
    if spec.is_list or len(spec.files) != 1 or Path(spec.files[0]).suffix != _ENDING:
        return None
    path = check_inside(root, spec.files[0], spec.at, Problems())  # reported by the layer of references
    head = None if path is None else _head(path)
    if head is None:
        return None
    shape, dtype = head
    return replace(spec, shape=spec.shape or shape, dtype=spec.dtype or dtype)


def _head(path: Path) -> tuple[tuple[int, ...], str] | None:
    """Shape and dtype of a file of numbers; None where it is none."""
    try:
        with path.open("rb") as file:
            read = _HEADS.get(np.lib.format.read_magic(file))
            if read is None:
                return None
            shape, _, dtype = read(file)
    except (OSError, ValueError):
        return None
    return (tuple(shape), str(dtype.newbyteorder("="))) if dtype.kind in _NUMBERS else None

"""Element types as graphs number them: numpy dtype -> ONNX's number, and ONNX Runtime's names -> ours."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

# TensorProto.DataType of onnx.proto. The 4-bit types lie packed, two per byte, in graph memory.
_NUMBERS = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "string": 8,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
    "uint4": 21,
    "int4": 22,
}
_RUNTIME_NAMES = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
}


@lru_cache(maxsize=64)
def element_number(dtype: np.dtype[Any]) -> int:
    """ONNX's number of a numpy (or ml_dtypes) dtype that can be bound by address."""
    return _NUMBERS[dtype.name]


def runtime_dtype_name(tensor_type: str) -> str:
    """Our name of a type as ONNX Runtime writes it, e.g. "tensor(float)" -> "float32"."""
    inner = tensor_type.removeprefix("tensor(").removesuffix(")")
    return _RUNTIME_NAMES.get(inner, inner)

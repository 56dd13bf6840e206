"""The outline of an ONNX file: the same protobuf message with the weights left out, taken without reading them.

The walk follows the protobuf wire format over a memory map and jumps over the payload of large tensors, so pages
that hold weights are never touched and a file of many gigabytes costs a few megabytes. It knows only field numbers
(from onnx.proto); the result is parsed by the onnx library in ``onnx_file``.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping

KEEP_BYTES = 1024  # tensors up to this size stay whole: shapes, axes and scalars that structure depends on
MAX_DEPTH = 64  # nested subgraphs; protobuf's own limit is of the same order

# Message kind -> field number -> kind of the nested message. Fields that are not listed are copied as they are.
_NESTED: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
# TensorProto: float_data, int32_data, string_data, int64_data, raw_data, double_data, uint64_data.
_PAYLOAD = frozenset({4, 5, 6, 7, 9, 10, 11})
_FIXED_SIZE = {1: 8, 5: 4}  # wire type -> bytes of a fixed64 and a fixed32 value
_VARINT, _LENGTH_DELIMITED = 0, 2


class WireError(Exception):
    """The bytes are not a protobuf message: where it shows, and whether bytes are missing (``truncated``)."""

    def __init__(self, offset: int, message: str, *, truncated: bool = False) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message
        self.truncated = truncated


def outline(buffer: bytes | mmap.mmap, keep: int = KEEP_BYTES) -> bytes:
    """The ModelProto in ``buffer`` without tensor payloads above ``keep`` bytes. Raises WireError."""
    return _trim(buffer, 0, len(buffer), "model", keep, 0)


def _trim(buffer: bytes | mmap.mmap, start: int, end: int, kind: str, keep: int, depth: int) -> bytes:
    """One message of ``kind`` in ``buffer[start:end]``, trimmed."""
    if depth > MAX_DEPTH:
        raise WireError(start, f"messages are nested more than {MAX_DEPTH} deep")
    nested = _NESTED[kind]
    parts: list[bytes] = []
    for number, wire_type, field_start, value_start, field_end in _fields(buffer, start, end):
        size = field_end - value_start
        if wire_type != _LENGTH_DELIMITED or size <= keep:
            parts.append(buffer[field_start:field_end])
        elif number in nested:
            body = _trim(buffer, value_start, field_end, nested[number], keep, depth + 1)
            parts += (_varint_bytes(number << 3 | _LENGTH_DELIMITED), _varint_bytes(len(body)), body)
        elif not (kind == "tensor" and number in _PAYLOAD):
            parts.append(buffer[field_start:field_end])
    return b"".join(parts)


def _fields(buffer: bytes | mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(field number, wire type, start of the field, start of its value, end of the field) for each field."""
    position = start
    while position < end:
        tag, value_start = _varint(buffer, position, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise WireError(position, "a field has the number 0")
        if wire_type == _VARINT:
            _, field_end = _varint(buffer, value_start, end)
        elif wire_type == _LENGTH_DELIMITED:
            size, value_start = _varint(buffer, value_start, end)
            field_end = value_start + size
        elif wire_type in _FIXED_SIZE:
            field_end = value_start + _FIXED_SIZE[wire_type]
        else:
            raise WireError(position, f"field {number} has the unknown wire type {wire_type}")
        if field_end > end:
            raise WireError(
                position, f"field {number} needs {field_end - end} more bytes than there are", truncated=True
            )
        yield number, wire_type, position, value_start, field_end
        position = field_end


def _varint(buffer: bytes | mmap.mmap, position: int, end: int) -> tuple[int, int]:
    """A base-128 varint at ``position`` and where it ends."""
    value = 0
    for count in range(10):
        if position + count >= end:
            raise WireError(position, "the file ends inside a number", truncated=True)
        byte = buffer[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + count + 1
    raise WireError(position, "a number is longer than ten bytes")


def _varint_bytes(value: int) -> bytes:
    """``value`` as a base-128 varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

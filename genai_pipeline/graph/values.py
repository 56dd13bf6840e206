"""The values a package can name: what inputs, parameters, data and loops publish, before any stage has run.

| who | publishes |
|---|---|
| text input | ``tokens``, ``mask``, ``types``, ``length``, ``offsets``, ``text`` |
| image input | ``pixels``, ``mask``, ``grid``, ``tiles``, ``tokens``, ``scale``, ``original``, ``positions`` |
| audio input | ``samples``, ``seconds``, ``features``, ``valid_frames``, ``tokens``, ``windows`` and ``positions`` |
| video input | what image and audio publish, and ``frames`` |
| tensor, items and vector inputs | ``values`` |
| ``loop: decode`` | DECODE_VALUES, what it carries, ``next_token`` after the choice |
| ``loop: iterate`` | ``step``, what it carries, ``timestep`` and ``sigma`` (schedule), ``item`` (over) |

Shapes are those of one request: b rows, S new tokens, T tokens in all; None where nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from genai_pipeline.graph.signature import Dim, Port
from genai_pipeline.metadata.expressions import ValueType
from genai_pipeline.metadata.model import DataSpec, InputSpec, ParameterSpec, StageSpec
from genai_pipeline.metadata.operations import OperationOutput
from genai_pipeline.problems import Location

Origin = Literal["input", "item", "parameter", "data", "loop", "stage", "choice", "state"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value under its ``key`` (``scope/name``); ``name`` is what stages of its scope call it."""

    key: str
    name: str
    origin: Origin
    at: Location
    type: ValueType = "unknown"
    dtype: str | None = None
    shape: tuple[Dim, ...] | None = None
    producer: str | None = None  # id of the stage in the same scope
    declared: bool = False  # named by the author under ``outputs``: unused is worth a note
    size: bool = False  # known once the inputs are read, before anything runs
    is_list: bool = False
    inner: str | None = None  # key of the value inside a loop or group that this one publishes
    open: bool = False  # has fields that only a run knows
    record: bool = False  # stands for its fields: nothing can take it whole
    rows: bool = False  # axis 0 is the batch axis: the value has one row per sequence already

    def listed(self) -> Value:
        """The value as the list of what each item of a ``for_each`` gives."""
        return replace(self, type="list", is_list=True, shape=None)


ROWS, NEW_TOKENS, ALL_TOKENS, LENGTH = "b", "S", "T", "length"  # axes of what decode loops and texts publish

_Field = tuple[str, ValueType, str | None, tuple[Dim, ...] | None]

_TEXT: Final[tuple[_Field, ...]] = (
    ("tokens", "tensor", "int64", (LENGTH,)),
    ("mask", "tensor", "int64", (LENGTH,)),
    ("types", "tensor", "int64", (LENGTH,)),
    ("length", "integer", "int64", ()),
    ("offsets", "tensor", "int64", (LENGTH, 2)),
    ("text", "string", None, None),
)
_IMAGE: Final[tuple[_Field, ...]] = (
    ("pixels", "tensor", "float32", None),
    ("mask", "tensor", None, None),
    ("grid", "tensor", "int64", None),
    ("tiles", "unknown", None, None),
    ("tokens", "integer", "int64", ()),
    ("scale", "unknown", "float32", None),
    ("original", "unknown", "int64", None),
    ("positions", "tensor", "int64", ("slots",)),
)
_AUDIO_PIECE: Final[tuple[_Field, ...]] = (
    ("samples", "tensor", "float32", None),
    ("seconds", "number", "float32", ()),
    ("features", "tensor", "float32", None),
    ("valid_frames", "integer", "int64", ()),
    ("tokens", "integer", "int64", ()),
)
_WINDOW: Final[tuple[_Field, ...]] = (
    *_AUDIO_PIECE,
    ("start", "number", "float32", ()),
    ("end", "number", "float32", ()),
)
WINDOW_FIELDS: Final = frozenset(field[0] for field in _WINDOW)
_AUDIO: Final[tuple[_Field, ...]] = (
    *_AUDIO_PIECE,
    ("windows", "list", None, None),
    ("positions", "tensor", "int64", ("slots",)),
)
_VALUES: Final[tuple[_Field, ...]] = (("values", "unknown", None, None),)
_VIDEO: Final[tuple[_Field, ...]] = (
    *_IMAGE,
    *(field for field in _AUDIO if field[0] not in ("tokens", "positions")),
    ("frames", "integer", "int64", ()),
)
FIELDS: Final[Mapping[str, tuple[_Field, ...]]] = {
    "text": _TEXT,
    "image": _IMAGE,
    "audio": _AUDIO,
    "video": _VIDEO,
    "tensor": _VALUES,
    "items": _VALUES,
    "vector": _VALUES,
}

# Vectors over rows are numbers to an expression: it is evaluated for one row at a time.
DECODE_VALUES: Final[tuple[_Field, ...]] = (
    ("tokens", "tensor", "int64", (ROWS, NEW_TOKENS)),
    ("attention_mask", "tensor", "int64", (ROWS, ALL_TOKENS)),
    ("position_ids", "tensor", "int64", (ROWS, NEW_TOKENS)),
    ("past_length", "integer", "int64", (ROWS,)),
    ("total_length", "integer", "int64", (ROWS,)),
    ("padded_length", "integer", "int64", (ROWS,)),
    ("sequence_lengths", "integer", "int64", (ROWS,)),
    ("last_index", "integer", "int64", (ROWS,)),
    ("max_length", "integer", "int64", ()),
    ("cache_position", "tensor", "int64", (ROWS, NEW_TOKENS)),
    ("write_indices", "integer", "int64", (ROWS,)),
    ("step", "integer", "int64", ()),
    ("first", "boolean", "bool", ()),
)
_DECODE_RESULTS: Final[tuple[_Field, ...]] = (
    ("tokens", "tensor", "int64", ("generated",)),
    ("text", "string", None, None),
    ("finish_reason", "string", None, None),
)
_PARAMETER_TYPES: Final[Mapping[str, tuple[ValueType, str | None]]] = {
    "integer": ("integer", "int64"),
    "number": ("number", "float64"),
    "boolean": ("boolean", "bool"),
    "string": ("string", None),
    "choice": ("unknown", None),
}


def is_list(spec: InputSpec) -> bool:
    """Whether an input takes several items: declared so, or allowed more than one."""
    return spec.is_list or (spec.max_items is not None and spec.max_items > 1)


def input_values(spec: InputSpec) -> Iterator[Value]:
    """What an input publishes: its fields, and itself for ``present``, ``for_each`` and ``.length``."""
    many = is_list(spec)
    yield Value(
        spec.name, spec.name, "input", spec.at, "list" if many else "unknown", size=True, is_list=many, record=True
    )
    for value in _fields(spec.name, FIELDS[spec.modality], "", "input", spec.at):
        known = replace(value, size=value.name != f"{spec.name}.positions")
        yield known.listed() if many else known


def item_values(list_value: Value, modality: str | None, scope: str) -> Iterator[Value]:
    """What a ``for_each`` publishes inside: the list's name, now one item, and that item's fields."""
    name, at = list_value.name, list_value.at
    fields = _item_fields(list_value, modality)
    yield Value(f"{scope}/{name}", name, "item", at, open=fields is None, record=fields is not None)
    yield from _fields(name, fields or (), f"{scope}/", "item", at)


def _item_fields(list_value: Value, modality: str | None) -> tuple[_Field, ...] | None:
    if list_value.origin != "input" or modality is None:
        return None
    if list_value.record:
        return FIELDS[modality]
    return _WINDOW if list_value.name.endswith(".windows") else None


def parameter_value(spec: ParameterSpec) -> Value:
    """A request parameter."""
    kind, dtype = _PARAMETER_TYPES[spec.type]
    name = f"parameters.{spec.name}"
    return Value(name, name, "parameter", spec.at, kind, dtype, () if dtype else None, size=True)


def data_value(spec: DataSpec) -> Value:
    """A tensor of the package, or a list of them."""
    name = f"data.{spec.name}"
    if spec.is_list or len(spec.files) > 1:
        return Value(name, name, "data", spec.at, "list", spec.dtype, is_list=True)
    return Value(name, name, "data", spec.at, "tensor" if spec.shape else "unknown", spec.dtype, spec.shape)


def loop_values(stage: StageSpec, scope: str) -> Iterator[Value]:
    """What a loop publishes to its own body as ``loop.x``."""
    if stage.decode is not None:
        yield from _fields("loop", DECODE_VALUES, f"{scope}/", "loop", stage.at)
        yield _loop_value("next_token", scope, stage.at, "tensor", "int64", "choice")
        if stage.decode.walk is not None:
            yield _loop_value("row", scope, stage.at)
        carried: Iterable[str] = stage.decode.carry
    else:
        assert stage.iterate is not None
        yield _loop_value("step", scope, stage.at, "integer", "int64")
        for name in ("timestep", "sigma") if stage.iterate.schedule else ("item",) if stage.iterate.over else ():
            yield _loop_value(name, scope, stage.at)
        carried = stage.iterate.carry
    for name in carried:
        yield _loop_value(name, scope, stage.at)


def _loop_value(
    name: str,
    scope: str,
    at: Location,
    kind: ValueType = "unknown",
    dtype: str | None = None,
    origin: Origin = "loop",
) -> Value:
    return Value(f"{scope}/loop.{name}", f"loop.{name}", origin, at, kind, dtype, () if kind == "integer" else None)


def decode_results(stage: StageSpec, prefix: str) -> Iterator[Value]:
    """What a decode loop itself publishes outside: ``id.tokens``, ``id.text``, ``id.finish_reason``."""
    for value in _fields(stage.id, _DECODE_RESULTS, prefix, "stage", stage.at):
        yield replace(value, producer=stage.id)


def port_type(port: Port) -> ValueType:
    """The type of what a graph's output holds; one that may be a scalar is unknown to expressions."""
    return "tensor" if port.shape and any(dim != 1 for dim in port.shape) else "unknown"


def operation_value(value: Value, output: OperationOutput) -> Value:
    """A value that an operation gives, with what its declaration says; its sizes are only known in a run."""
    if output.kind == "text":
        return replace(value, type="string")
    if output.kind == "list":
        return value.listed()
    shape = None if output.rank is None else ("",) * output.rank
    return replace(value, dtype=output.dtype, shape=shape)


def _fields(owner: str, fields: Iterable[_Field], prefix: str, origin: Origin, at: Location) -> Iterator[Value]:
    for field, kind, dtype, shape in fields:
        name = f"{owner}.{field}"
        rows = origin == "loop" and bool(shape) and shape[0] == ROWS  # type: ignore[index]
        yield Value(f"{prefix}{name}", name, origin, at, kind, dtype, shape, is_list=kind == "list", rows=rows)

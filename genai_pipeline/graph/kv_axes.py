"""The axes of a state tensor: batch, tokens, heads, and how large the fixed ones are.

How they are told apart:

- ``shape:`` names them, if it is given;
- otherwise keys and values have four axes, the first being the batch, and the tokens are along axis 2
  ([b, heads, length, head_dim]), unless the graph leaves axis 1 open and fixes axis 2, or it fixes both and only
  axis 2 is the declared number of heads: then along axis 1 ([b, length, heads, head_dim]);
- recurrent state (``replace``) has no tokens; its batch axis is axis 0 where the graph leaves that open or fixes it
  to 1, else the only axis that is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from genai_pipeline.graph.kv_ports import StatePort
from genai_pipeline.graph.signature import Dim
from genai_pipeline.graph.uses import below
from genai_pipeline.metadata.model import KvSpec
from genai_pipeline.problems import Problems

BATCH, LENGTH = "batch", "length"
_HEADS, _HEAD_DIM = "heads", "head_dim"
_RANK = 4  # of keys and values
_T = TypeVar("_T")


def of_layer(value: _T | tuple[_T | None, ...] | None, index: int) -> _T | None:
    """Geometry of one layer, by its index among those of the entry: a single value is for all of them."""
    if not isinstance(value, tuple):
        return value
    return value[index] if index < len(value) else None


def tensor_shape(kv: KvSpec, port: StatePort, index: int, problems: Problems) -> tuple[int | str, ...]:
    """The shape of one state tensor with "batch" and "length" named; () once something about it was reported."""
    dims = _known_dims(port)
    if kv.shape is not None:
        return _declared_shape(kv, port, dims, index, problems)
    if dims is None:
        _unknown(
            kv, f"the graph does not say what shape '{port.past.name}' has", "give it: shape: [batch, ...]", problems
        )
        return ()
    if kv.update == "replace":
        return _recurrent_shape(kv, port, dims, problems)
    if len(dims) != _RANK:
        message = f"'{port.past.name}' has rank {len(dims)} where keys and values have {_RANK}"
        _unknown(kv, message, "name its axes: shape: [batch, length, ...]", problems)
        return ()
    if not _is_batch(dims[0]):
        _report_batch(kv, port, dims[0], problems)
        return ()
    axes = _axes_of_cache(dims, of_layer(kv.heads, index))
    return _sized(kv, port, dims, axes, index, problems)


def _known_dims(port: StatePort) -> tuple[Dim, ...] | None:
    """The past port's sizes; where it leaves one open and the present port fixes it, that one."""
    own = port.past.shape
    other = port.present.shape if port.present is not None else None
    if own is None or other is None or len(own) != len(other):
        return own if own is not None else other
    return tuple(a if isinstance(a, int) else b if isinstance(b, int) else a for a, b in zip(own, other, strict=True))


def _is_batch(dim: Dim) -> bool:
    """Whether an axis can be the batch: open, or fixed to 1, which means never batched."""
    return not isinstance(dim, int) or dim == 1


def _axes_of_cache(dims: Sequence[Dim], heads: int | None) -> tuple[str, ...]:
    """The names of the four axes of keys or values."""
    one, two = dims[1], dims[2]
    if isinstance(one, int) and isinstance(two, int):
        swapped = heads is not None and one != heads and two == heads
    else:
        swapped = not isinstance(one, int) and isinstance(two, int)
    return (BATCH, LENGTH, _HEADS, _HEAD_DIM) if swapped else (BATCH, _HEADS, LENGTH, _HEAD_DIM)


def _recurrent_shape(kv: KvSpec, port: StatePort, dims: Sequence[Dim], problems: Problems) -> tuple[int | str, ...]:
    """State without tokens: every axis but the batch is fixed."""
    open_axes = [axis for axis, dim in enumerate(dims) if not isinstance(dim, int)]
    batch = 0 if dims and _is_batch(dims[0]) else open_axes[0] if len(open_axes) == 1 else -1
    if batch < 0 or any(axis != batch for axis in open_axes):
        _unknown(kv, f"the axes {_written(dims)} of '{port.past.name}' are not clear", "name them: shape:", problems)
        return ()
    return tuple(BATCH if axis == batch else dim for axis, dim in enumerate(dims))


def _declared_shape(
    kv: KvSpec, port: StatePort, dims: Sequence[Dim] | None, index: int, problems: Problems
) -> tuple[int | str, ...]:
    """``shape:`` as written, checked against the graph."""
    assert kv.shape is not None
    at, wanted = below(kv.at, "shape"), {BATCH} if kv.update == "replace" else {BATCH, LENGTH}
    named = [axis for axis in kv.shape if isinstance(axis, str)]
    if set(named) != wanted or len(named) != len(wanted):
        message = (
            f"shape: names {', '.join(named) or 'no axes'}; {kv.update} has {' and '.join(sorted(wanted))}, each once"
        )
        problems.error(at, "kv.shape", message)
        return ()
    if dims is None:
        return kv.shape
    if len(dims) != len(kv.shape):
        message = f"shape: has {len(kv.shape)} axes; '{port.past.name}' has {len(dims)}: {_written(dims)}"
        problems.error(at, "kv.shape", message)
        return ()
    for axis, (declared, dim) in enumerate(zip(kv.shape, dims, strict=True)):
        if isinstance(declared, int) and isinstance(dim, int) and declared != dim:
            message = f"shape: axis {axis} is declared {declared}; '{port.past.name}' is {_written(dims)}"
            problems.error(at, "kv.shape", message)
            return ()
        if declared == BATCH and not _is_batch(dim):
            _report_batch(kv, port, dim, problems)
            return ()
    rest = iter((_HEADS, _HEAD_DIM) if len(kv.shape) - len(named) == 2 and kv.update != "replace" else ())
    axes = tuple(axis if isinstance(axis, str) else next(rest, "") for axis in kv.shape)
    sizes = tuple(axis if isinstance(axis, int) else dim for axis, dim in zip(kv.shape, dims, strict=True))
    return _sized(kv, port, sizes, axes, index, problems)


def _sized(
    kv: KvSpec, port: StatePort, dims: Sequence[Dim], axes: Sequence[str], index: int, problems: Problems
) -> tuple[int | str, ...]:
    """Named axes stay names, the others become numbers, from the graph or as declared."""
    shape: list[int | str] = []
    for axis, dim in zip(axes, dims, strict=True):
        if axis in (BATCH, LENGTH):
            shape.append(axis)
            continue
        declared = of_layer(getattr(kv, axis), index) if axis else None
        if isinstance(dim, int) and declared is not None and declared != dim:
            message = f"{axis}: {declared} is declared; '{port.past.name}' has {dim}"
            hint = "leave it out: the graph's number counts"
            problems.error(below(kv.at, axis), f"kv.{axis}", message, hint)
        size = dim if isinstance(dim, int) else declared
        if size is None:
            message = f"the graph leaves the {axis or 'size'} of '{port.past.name}' open: {_written(dims)}"
            _unknown(kv, message, f"give it: {axis}: ...", problems)
            return ()
        shape.append(size)
    return tuple(shape)


def _report_batch(kv: KvSpec, port: StatePort, dim: Dim, problems: Problems) -> None:
    message = f"the batch axis of '{port.past.name}' is fixed to {dim}; it must be open, or 1"
    problems.error(below(kv.at, "past"), "kv.shape", message, "export the graph with a dynamic batch axis")


def _unknown(kv: KvSpec, message: str, hint: str, problems: Problems) -> None:
    problems.error(below(kv.at, "past"), "kv.unknown", message, hint)


def _written(dims: Sequence[Dim]) -> str:
    """Sizes as the graph has them, "?" for those without a name."""
    return f"[{', '.join(str(dim) or '?' for dim in dims)}]"

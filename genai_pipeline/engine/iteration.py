"""One run of a ``loop: iterate``: which step it is at, what it hands on and what it has collected."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.engine.scope_run import Call, ScopeRun, stage_path
from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.expression_values import truth
from genai_pipeline.metadata.expressions import evaluate
from genai_pipeline.metadata.model import Binding, CollectSpec, OverSpec


class Piece(NamedTuple):
    """What a step added to a collected value, under the key that the whole will have."""

    key: str
    value: Any


class _Window(NamedTuple):
    """Rows [start, stop) of a walk, and those of context before and after them that the value really has."""

    start: int
    stop: int
    before: int
    after: int


class Iteration:
    """Steps of one call: ``step`` gives what the next one reads, ``end_step`` takes in what it has computed."""

    def __init__(self, call: Call) -> None:
        spec = call.stage.spec.iterate
        assert spec is not None
        assert call.stage.body is not None
        self._spec = spec
        self._call = call
        self._body = call.stage.body
        self._prefix = f"{stage_path(call.run.scope.plan, call.stage)}/loop."
        self._over: Any = None if spec.over is None else self._read(spec.over.value)
        self._last_step = self._count()
        self.index = 0
        self._ended = False
        self._carried = {name: self._read(carry.initial) for name, carry in spec.carry.items()}
        self._pieces: dict[str, list[Any]] = {name: [] for name in spec.collect}

    @property
    def over(self) -> bool:
        """Whether no step follows."""
        return self._ended or self.index >= self._last_step

    def step(self) -> dict[str, Any]:
        """What the loop publishes to the next step's body, by value key."""
        published = {"step": self.index, **self._carried}
        if self._spec.over is not None:
            published["item"] = self._item(self._spec.over)
        return {f"{self._prefix}{name}": value for name, value in published.items()}

    def end_step(self, body: ScopeRun) -> list[Piece]:
        """Take in what a step has computed; gives what was added to the collected values."""
        pieces = [Piece(self._key(name), self._add(name, one, body)) for name, one in self._spec.collect.items()]
        reads = self._body.reads
        self._carried = {
            name: evaluate(carry.next.expr, lambda read: body.values[reads[read]])
            for name, carry in self._spec.carry.items()
        }
        if self._spec.until is not None:
            self._ended = truth(body.values[reads[self._spec.until]], "until")
        self.index += 1
        return pieces

    def outputs(self) -> dict[str, Any]:
        """What the loop gives in the end: collected values joined, carried ones as they are now."""
        joined = {name: self._joined(name, one) for name, one in self._spec.collect.items()}
        return {self._key(name): value for name, value in {**self._carried, **joined}.items()}

    def _key(self, name: str) -> str:
        scope = self._call.run.scope.plan
        return f"{scope.id}/{self._call.stage.id}.{name}" if scope.id else f"{self._call.stage.id}.{name}"

    def _read(self, binding: Binding) -> Any:
        reads, values = self._call.stage.reads, self._call.values
        return evaluate(binding.expr, lambda name: values[reads[name]])

    def _count(self) -> int:
        """The most steps."""
        spec = self._spec
        if spec.over is not None:
            rows = np.shape(np.asarray(self._over))
            if not -len(rows) <= spec.over.axis < len(rows):
                message = f"'{self._call.stage.id}' goes over axis {spec.over.axis} of a value with {len(rows)} axes"
                raise RequestError(message)
            return -(-int(rows[spec.over.axis]) // spec.over.chunk)
        bound = spec.count if spec.count is not None else spec.max
        assert bound is not None, "checked: an iterate loop says how often"
        return int(self._read(bound))

    def _window(self, over: OverSpec) -> _Window:
        size = np.shape(self._over)[over.axis]
        start = self.index * over.chunk
        stop = min(start + over.chunk, size)
        return _Window(start, stop, min(over.before, start), min(over.after, size - stop))

    def _item(self, over: OverSpec) -> NDArray[Any]:
        """The rows of a step with their context; where the value begins or ends there is less of that."""
        window = self._window(over)
        value = np.asarray(self._over)
        axis = over.axis % value.ndim
        rows = slice(window.start - window.before, window.stop + window.after)
        return value[(slice(None),) * axis + (rows,)]

    def _add(self, name: str, collect: CollectSpec, body: ScopeRun) -> Any:
        value = body.values[self._body.reads[collect.value]]
        over = self._spec.over
        if value is not None and collect.axis is not None and collect.scale is not None and over is not None:
            window, value = self._window(over), np.asarray(value)
            axis = collect.axis % value.ndim
            rows = slice(window.before * collect.scale, value.shape[axis] - window.after * collect.scale)
            value = value[(slice(None),) * axis + (rows,)]
        if value is not None:
            self._pieces[name].append(value)
        return value

    def _joined(self, name: str, collect: CollectSpec) -> Any:
        """One value of all steps: joined on its axis, a list where it has none."""
        pieces = self._pieces[name]
        if collect.axis is None:
            return pieces
        if not pieces:
            raise RequestError(f"'{self._key(name)}' has no step to be joined from", hint="the loop had nothing to do")
        try:
            return np.concatenate(pieces, collect.axis)
        except ValueError as error:
            shapes = ", ".join(sorted({str(list(np.shape(piece))) for piece in pieces}))
            message = f"'{self._key(name)}' cannot be joined on axis {collect.axis} from steps of shapes {shapes}"
            raise RequestError(message) from error

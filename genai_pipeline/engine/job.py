"""A component stage outside all loops: jobs of several requests run as one batch, each gets its own rows back."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding, Buffer, LoadedGraph
from genai_pipeline.engine.body_stage import shape_rule
from genai_pipeline.engine.feeds import as_port
from genai_pipeline.engine.outer_values import digest
from genai_pipeline.engine.result_cache import ResultCache
from genai_pipeline.errors import RequestError
from genai_pipeline.graph.plan import StagePlan, bound_ports
from genai_pipeline.graph.random_nodes import RANDOM_SEED
from genai_pipeline.graph.signature import Port
from genai_pipeline.metadata.expressions import evaluate
from genai_pipeline.metadata.model import ComponentSpec
from genai_pipeline.types import numpy_dtype

if TYPE_CHECKING:
    from genai_pipeline.engine.request import RequestState
    from genai_pipeline.engine.scope_run import Call, Values

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One request's run of a stage: its inputs by port, ``rows`` of them where the port has a batch axis."""

    id: int
    stage: str  # its path
    call: Call
    inputs: Arrays
    rows: int
    batch_key: Hashable
    digest: bytes | None = None  # of its inputs, where results are kept

    @property
    def request(self) -> RequestState:
        """Whose job it is."""
        return self.call.request


class JobStage:
    """Makes jobs of a component stage, and runs those that share a batch. ``run`` is for one thread at a time."""

    def __init__(
        self, path: str, stage: StagePlan, graph: LoadedGraph, spec: ComponentSpec, cache: ResultCache | None = None
    ) -> None:
        self.path = path
        self._stage = stage
        self._cache = cache
        self._graph = graph
        self._binding = graph.binding()
        self._pad = spec.pad
        self._unbatched = frozenset(spec.no_batch_axis)
        self._ports = dict(bound_ports(stage.spec))
        outputs = [graph.signature.outputs[port] for port in stage.outputs]
        self._draws = RANDOM_SEED in graph.signature.inputs
        self._stacks = spec.batch == "stack" and not self._draws and all(port.batched for port in outputs)

    def job(self, id: int, call: Call) -> Job:
        """The run that ``call`` asks for. Raises RequestError for values that the graph cannot take."""
        inputs: dict[str, NDArray[Any]] = {}
        rows: dict[str, int] = {}
        values = call.values
        for name, binding in self._ports.items():
            port = self._graph.signature.inputs[name]
            value = evaluate(binding.expr, lambda read: values[self._stage.reads[read]])
            inputs[name] = as_port(value, numpy_dtype(port.dtype), None if port.shape is None else len(port.shape))
            if self._batched(port):
                if not inputs[name].ndim:
                    raise RequestError(f"stage '{self.path}' needs rows at '{name}', not a single number")
                rows[name] = inputs[name].shape[0]
        if len(set(rows.values())) > 1:
            counts = ", ".join(f"'{name}' {count}" for name, count in rows.items())
            raise RequestError(f"stage '{self.path}' has inputs with different numbers of rows: {counts}")
        if self._draws:
            inputs[RANDOM_SEED] = np.array(_drawn_seed(self.path, call), np.int64)
        key = self._batch_key(inputs) if rows and self._stacks else id
        return Job(id, self.path, call, inputs, next(iter(rows.values()), 1), key, self._digest(inputs))

    def known(self, job: Job) -> Values | None:
        """What an earlier job with the very same inputs gave, if that was kept."""
        return None if self._cache is None or job.digest is None else self._cache.get(job.digest)

    def keep(self, job: Job, outputs: Values) -> None:
        """Keep what a job gave for later ones with the same inputs."""
        if self._cache is not None and job.digest is not None:
            self._cache.put(job.digest, outputs)

    def _digest(self, inputs: Arrays) -> bytes | None:
        if self._cache is None:
            return None
        parts = [self.path.encode(), *(name.encode() + digest(array) for name, array in sorted(inputs.items()))]
        return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """What a run runs."""
        return (self._binding,)

    def run(self, jobs: Sequence[Job]) -> list[Arrays]:
        """Outputs by value key for each job. Raises GraphRunError."""
        joined = {name: self._join(name, [job.inputs[name] for job in jobs]) for name in jobs[0].inputs}
        for name, array in joined.items():
            self._binding.bind_input(name, Buffer.of(array))
        memory = {name: self._memory(name, joined) for name in self._stage.outputs}
        for name, own in memory.items():
            self._binding.bind_output(name, None if own is None else Buffer.of(own))
        self._binding.run()
        results = {name: self._binding.output(name).copy() if own is None else own for name, own in memory.items()}
        if len(jobs) == 1:
            return [{key: results[name] for name, key in self._stage.outputs.items()}]
        return list(self._parts(jobs, results))

    def _batched(self, port: Port) -> bool:
        return port.batched and port.name not in self._unbatched

    def _batch_key(self, inputs: Arrays) -> Hashable:
        """Equal for jobs that may share a run: same shapes but for padded axes, same values without a batch axis."""
        key: list[Hashable] = []
        for name, array in inputs.items():
            port = self._graph.signature.inputs[name]
            if not self._batched(port):
                key.append(digest(array))
            elif name in self._pad:
                key.append(tuple(d for d, dim in zip(array.shape[1:], (port.shape or ())[1:], strict=True) if dim == d))
            else:
                key.append(array.shape[1:])
        return tuple(key)

    def _join(self, name: str, arrays: list[NDArray[Any]]) -> NDArray[Any]:
        """One array of all jobs' rows, padded at the end where shapes differ."""
        if len(arrays) == 1 or not self._batched(self._graph.signature.inputs[name]):
            return arrays[0]
        widest = tuple(max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True))
        if name not in self._pad or all(array.shape[1:] == widest for array in arrays):
            return np.concatenate(arrays)
        joined = np.full((sum(array.shape[0] for array in arrays), *widest), self._pad[name], arrays[0].dtype)
        for first, array in zip(_starts(arrays), arrays, strict=True):
            joined[(slice(first, first + array.shape[0]), *map(slice, array.shape[1:]))] = array
        return joined

    def _memory(self, name: str, joined: Arrays) -> NDArray[Any] | None:
        """A fresh array for an output whose shape follows from the inputs; None: memory of the backend's own."""
        rule = shape_rule(self._graph.signature, name, joined)
        dtype = numpy_dtype(self._graph.signature.outputs[name].dtype)
        if rule is None or dtype.kind in "OUS":
            return None
        return np.empty([axis if isinstance(axis, int) else joined[axis[0]].shape[axis[1]] for axis in rule], dtype)

    def _parts(self, jobs: Sequence[Job], results: Arrays) -> Iterator[Arrays]:
        """Each job's own rows of the outputs, without what was padded."""
        first = 0
        for job in jobs:
            rows = slice(first, first + job.rows)
            sizes = self._sizes(job)
            yield {
                key: results[name][(rows, *self._own(name, results[name].ndim, sizes))]
                for name, key in self._stage.outputs.items()
            }
            first += job.rows

    def _sizes(self, job: Job) -> dict[str, int]:
        """What the symbols of padded inputs stand for in a job."""
        found: dict[str, int] = {}
        for name in self._pad:
            if name in job.inputs:
                dims = self._graph.signature.inputs[name].shape or ()
                pairs = zip(dims, job.inputs[name].shape, strict=True)
                found.update({dim: size for dim, size in pairs if isinstance(dim, str) and dim})
        return found

    def _own(self, name: str, rank: int, sizes: Mapping[str, int]) -> Iterator[slice]:
        """Slices of the axes after the first that cut padding off."""
        dims = self._graph.signature.outputs[name].shape or ("",) * rank
        for dim in dims[1:]:
            yield slice(sizes.get(dim) if isinstance(dim, str) else None)


def _drawn_seed(path: str, call: Call) -> int:
    """Where the random numbers of a graph start: another number for each request's seed, stage and item."""
    words = repr((call.request.request.seed, path, call.item)).encode()
    return int.from_bytes(hashlib.blake2b(words, digest_size=8, person=b"graph noise").digest(), "little") >> 1


def _starts(arrays: Sequence[NDArray[Any]]) -> list[int]:
    return list(itertools.accumulate([array.shape[0] for array in arrays], initial=0))[:-1]

"""One binding of one port: whether the value may go there, by dtype, rank and sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from genai_pipeline.graph.dims import Dims, End, RunSize
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.graph.port_types import fits, literal_fault, literal_rank
from genai_pipeline.graph.scope import Read, StageNode
from genai_pipeline.graph.signature import Dim, GraphSignature, Port
from genai_pipeline.graph.values import ALL_TOKENS, LENGTH, NEW_TOKENS, ROWS, Value
from genai_pipeline.metadata.expressions import Expr, IfElse, ListExpr, Name
from genai_pipeline.metadata.model import Binding, ComponentSpec
from genai_pipeline.problems import Problems

_SIZES = {ROWS: "b (rows)", NEW_TOKENS: "S (new tokens)", ALL_TOKENS: "T (all tokens)"}  # of a decode loop


@dataclass(frozen=True, slots=True)
class Component:
    """What the checks need of one component: its graphs, the first for names and shapes, and its state."""

    spec: ComponentSpec
    signature: GraphSignature
    states: tuple[StatePlan, ...] = ()
    later: GraphSignature | None = None

    @property
    def inputs(self) -> dict[str, Port]:
        """Inputs of either graph."""
        return {**(self.later.inputs if self.later else {}), **self.signature.inputs}

    @property
    def outputs(self) -> dict[str, Port]:
        """Outputs of either graph."""
        return {**(self.later.outputs if self.later else {}), **self.signature.outputs}

    @property
    def later_inputs(self) -> dict[str, Port]:
        """Inputs of the graph for later runs where there are two, in which new tokens are not all tokens."""
        return {**self.signature.inputs, **(self.later.inputs if self.later else {})}

    @property
    def later_outputs(self) -> dict[str, Port]:
        """Outputs of the graph for later runs where there are two."""
        return {**self.signature.outputs, **(self.later.outputs if self.later else {})}

    @property
    def past_ports(self) -> frozenset[str]:
        """Inputs that state is bound to."""
        return frozenset(tensor.past for state in self.states for tensor in state.tensors)

    @property
    def lacks_state(self) -> bool:
        """Whether a kv entry matched nothing, which was reported."""
        return any(not state.tensors for state in self.states)

    @property
    def file(self) -> str:
        """The graph as messages name it."""
        return self.spec.model or self.spec.name


@dataclass(frozen=True, slots=True)
class Edge:
    """A binding of a port of a stage's graph."""

    node: StageNode
    component: Component
    port: Port
    binding: Binding
    dims: Dims
    problems: Problems
    data: Mapping[str, Value]  # as their files have them

    def check(self) -> None:
        """Dtype, rank and sizes of what is bound."""
        expr = self.binding.expr
        fault = literal_fault(expr, self.port.dtype)
        if fault:
            self._error("port.dtype", f"takes {self.port.dtype}; {fault}")
        for branch in _branches(expr):
            self._check_branch(branch)

    def _check_branch(self, expr: Expr) -> None:
        """What is bound, or one of the things that a condition chooses from."""
        rank = literal_rank(expr)
        text = self.binding.text if expr is self.binding.expr else "a branch"
        if rank is not None and self._check_rank(text, rank) and isinstance(expr, ListExpr):
            self._check_length(len(expr.items), rank)
        read = self._read(expr)
        if read is None:
            return
        self._check_value(self.data.get(read.value.name, read.value))
        for value in _carried(read):
            self._check_dtype(value)
            if value.shape:
                self._check_axis(value, len(value.shape) - 1)

    def _read(self, expr: Expr) -> Read | None:
        """The value that is bound as it is; None for a literal or an expression."""
        if not isinstance(expr, Name):
            return None
        reads = (read for read in self.node.reads if read.use.expr is self.binding.expr and read.name == expr.text)
        return next(reads, None)

    def _check_value(self, value: Value) -> None:
        """A value as it is, without being computed with."""
        if value.record:
            return  # stands for its fields: reported where names are resolved
        if value.is_list:
            hint = f"run the stage with for_each: {value.name}"
            self._error("port.rank", f"takes one tensor; '{value.name}' is a list", hint)
        elif self._check_dtype(value) and value.shape is not None and not self._computed_positions(value):
            fits = self._check_rank(f"'{value.name}'", len(value.shape), rows=value.rows)
            for axis in range(len(value.shape) if fits else 0):
                self._check_axis(value, axis)

    def _check_dtype(self, value: Value) -> bool:
        """A value is cast to its port's dtype only where no number changes."""
        if value.type == "string" and self.port.dtype != "string":
            self._error("port.dtype", f"takes {self.port.dtype}; '{value.name}' is text")
            return False
        if value.dtype is not None and not fits(value.name, value.origin, value.dtype, self.port.dtype):
            hint = "values are cast only where no number changes"
            self._error("port.dtype", f"takes {self.port.dtype}; '{value.name}' is {value.dtype}", hint)
        return True

    def _check_rank(self, what: str, rank: int, *, rows: bool = False) -> bool:
        """A value has its port's rank, or one less: it gains the batch axis, unless it has ``rows`` already.

        One number per row may also go to a scalar port: rows with different numbers do not share a run.
        """
        if self.port.shape is None:
            return True
        wanted = len(self.port.shape)
        if rank == wanted or (wanted == 0 and rank == 1 if rows else rank == wanted - 1):
            return True
        shape = f"[{', '.join(str(dim) or '?' for dim in self.port.shape)}]"
        hint = "it has the batch axis already: only values of a request gain one" if rows and rank == wanted - 1 else ""
        self._error("port.rank", f"has rank {wanted} {shape}; {what} has rank {rank}", hint)
        return False

    def _check_length(self, length: int, rank: int) -> None:
        """A list has as many items as its axis."""
        dims = self.port.shape or ()
        index = len(dims) - rank
        dim = dims[index] if index >= 0 else ""
        if isinstance(dim, int) and dim != length:
            self._error("port.dims", f"takes {dim} numbers; {self.binding.text} has {length}")
        elif index > 0:
            self.dims.equal(End("", length, f"the list {self.binding.text}"), self._end(index, dim), self.binding.at)

    def _check_axis(self, value: Value, axis: int) -> None:
        """One axis of a value and the axis of the port it falls on, aligned at the end."""
        shape, wanted = value.shape or (), self.port.shape or ()
        index = axis + len(wanted) - len(shape)
        if not 0 <= index < len(wanted):
            return
        if value.origin == "loop":
            self._check_loop_axis(shape[axis], wanted[index])
            self._check_loop_size(value, axis, index)
        elif index > 0 or self._is_whole(value):  # batch axes are free
            source = End(_owner_of(value), _size(value, axis), f"axis {axis} of '{value.name}'")
            self.dims.equal(source, self._end(index, wanted[index]), self.binding.at)

    def _is_whole(self, value: Value) -> bool:
        """Whether a value of the package goes to a port without a batch axis: it comes as it is."""
        return value.origin == "data" and self.port.name in self.component.spec.no_batch_axis

    def _check_loop_size(self, value: Value, axis: int, index: int) -> None:
        """A symbol stands for one size of the loop. A graph for the first run knows new tokens only, so the one for
        later runs counts; packed rows have other axes."""
        shape = self.component.later_inputs[self.port.name].shape or ()
        dim = shape[index] if index < len(shape) else ""
        if isinstance(dim, str) and self.component.spec.batch != "pack":
            source = End("", _size(value, axis), f"axis {axis} of '{value.name}'")
            self.dims.equal(source, self._end(index, dim), self.binding.at)

    def _end(self, index: int, dim: Dim) -> End:
        """An axis of the port."""
        place = f"axis {index} of '{self.port.name}' of {self.component.file}"
        return End(f"{self.node.scope.prefix}{self.node.id}", dim, place)

    def _check_loop_axis(self, meaning: Dim, dim: Dim) -> None:
        """A graph with a fixed number of rows or of new tokens has to say so."""
        if not isinstance(dim, int):
            return
        if meaning == ROWS and dim != 1:
            hint = "export with a dynamic batch axis, or with 1: never batched"
            self._error("port.batch", f"takes exactly {dim} rows; a run has as many as there are", hint)
        elif meaning == NEW_TOKENS and self.component.spec.span is None:
            hint = f"declare span: {{first: {dim}, later: {dim}}}, or export with a dynamic axis"
            self._error("port.span", f"takes exactly {dim} new tokens; a run has as many as there are", hint)

    def _computed_positions(self, value: Value) -> bool:
        """Whether the value is positions that an operation of the loop computes, with axes of its own."""
        loop = self.node.scope.stage
        return value.name == "loop.position_ids" and loop is not None and bool(loop.decode and loop.decode.positions)

    def _error(self, code: str, message: str, hint: str = "") -> None:
        where = f"'{self.port.name}' of {self.component.file}"
        self.problems.error(self.binding.at, code, f"{where} {message}", hint)


def _carried(read: Read) -> Iterator[Value]:
    """What a loop carries under the name that is read: the initial value, and the one for later steps."""
    name = read.name.partition(".")[2]
    loop = read.owner.stage
    if read.value.origin != "loop" or loop is None or read.owner.parent is None:
        return
    starts = (read for node in read.owner.parent.nodes if node.spec is loop for read in node.reads)
    for found in (*starts, *read.owner.ends):
        carries = found.use.port in (f"carry.{name}.initial", f"carry.{name}.next")
        if carries and isinstance(found.use.expr, Name) and found.use.expr.text == found.name:
            yield found.value


def _branches(expr: Expr) -> Iterator[Expr]:
    """What a condition chooses from; anything else as it is."""
    if isinstance(expr, IfElse):
        yield from _branches(expr.then)
        yield from _branches(expr.other)
    else:
        yield expr


def all_tokens(loop: str) -> RunSize:
    """The size T of a loop."""
    return RunSize(loop, _SIZES[ALL_TOKENS])


def new_tokens(loop: str) -> RunSize:
    """The size S of a loop."""
    return RunSize(loop, _SIZES[NEW_TOKENS])


def _size(value: Value, axis: int) -> Dim | RunSize:
    """The size of an axis: of a loop's value or a text, one that belongs to that loop or text."""
    dim = (value.shape or ())[axis]
    if value.origin == "loop" and dim in _SIZES:
        return RunSize(value.key.rpartition("/")[0], _SIZES[str(dim)])
    if value.origin in ("input", "item") and dim == LENGTH:
        owner = value.key.rpartition(".")[0]
        return RunSize(owner, f"the length of '{owner.rpartition('/')[2]}'", varies=False)
    return dim


def _owner_of(value: Value) -> str:
    """Whose symbols a value's sizes are: the stage that makes it."""
    scope = (value.inner or value.key).rpartition("/")[0]
    maker = value.producer if value.producer is not None and value.inner is None else value.name
    return f"{scope}/{maker}" if scope else maker

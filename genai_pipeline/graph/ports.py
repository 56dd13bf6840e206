"""Checks every run stage against the ports of its graph: names, dtypes, ranks, sizes, batch axes, logits.

What is bound by ``kv`` entries needs no binding; everything else that a graph takes does. Sizes are unified over all
edges of the package, so a conflict shows however far its ends are apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from genai_pipeline.graph.dims import Dims, End
from genai_pipeline.graph.edges import Component, Edge, all_tokens, new_tokens
from genai_pipeline.graph.logit_rows import LOGIT_ROWS
from genai_pipeline.graph.port_types import is_float, is_integer
from genai_pipeline.graph.scope import Scope, StageNode
from genai_pipeline.graph.signature import Dim, Port
from genai_pipeline.graph.uses import below
from genai_pipeline.graph.values import Value
from genai_pipeline.metadata.build_values import FAMILY_SLOTS
from genai_pipeline.metadata.model import Binding
from genai_pipeline.metadata.nodes import child_path
from genai_pipeline.problems import Location, Problems, folded, nearest, one_of

NO_DATA: Mapping[str, Value] = MappingProxyType({})
_USUAL = {"input_ids": "tokens", "seqlens_k": "last_index", "total_sequence_length": "max_length"}  # by exporters


def check_ports(
    root: Scope, components: Mapping[str, Component], problems: Problems, data: Mapping[str, Value] = NO_DATA
) -> None:
    """Report everything about bindings that the graphs do not take; components that are absent are left out.

    ``data``: values by name that are known better than their declarations tell, out of their files.
    """
    checker = _Checker(components, problems, data)
    for component in components.values():
        checker.check_component(component)
    nodes = [node for scope in root.subtree() for node in scope.nodes]
    for node in nodes:
        if node.spec.run in components:
            checker.check_stage(node)
    for node in nodes:
        if node.spec.decode is not None:
            _check_result(node, components, problems)
            checker.check_rows(node)


class _Checker:
    """Walks the run stages; ``dims`` collects the sizes of the whole package."""

    def __init__(self, components: Mapping[str, Component], problems: Problems, data: Mapping[str, Value]) -> None:
        self.components = components
        self.problems = problems
        self.data = data
        spans = any(component.spec.span is not None for component in components.values())
        self.dims = Dims(problems, spans=spans)

    def check_stage(self, node: StageNode) -> None:
        """Everything about one run stage."""
        component = self.components[node.spec.run or ""]
        inputs = component.inputs
        bound = set()
        self._state_sizes(node, component)
        for written, binding in sorted(node.spec.inputs.items(), key=_is_not_tokens):
            for name, member in _expand(written, binding):
                bound.add(name)
                if name in component.past_ports:
                    message = f"'{name}' of {component.file} is state: the kv entry binds it"
                    self.problems.error(member.at, "port.state", message, "remove it from inputs:")
                elif name in inputs:
                    Edge(node, component, inputs[name], member, self.dims, self.problems, self.data).check()
                else:
                    bound.add(self._unknown(component, name, member.at))  # one mistake, one problem
        self._check_unbound(node, component, bound)
        for name in node.spec.outputs:
            if name not in component.outputs:
                outputs = below(node.spec.at, "outputs")
                at = replace(outputs, path=child_path(outputs.path, name))
                message = f"{component.file} has no output '{name}'"
                self.problems.error(at, "port.unknown_output", message, _meant(name, component.outputs))

    def _state_sizes(self, node: StageNode, component: Component) -> None:
        """A cache that grows by what is new comes back with all tokens of the loop: so does a mask of that size."""
        loop = next((scope for scope in node.scope.chain() if scope.kind == "decode"), None)
        growing = (state for state in component.states if loop is not None and state.update == "append")
        tensor = next((tensor for state in growing for tensor in state.tensors if tensor.has_length), None)
        present = component.later_outputs.get(tensor.present or "") if tensor is not None else None
        if loop is None or tensor is None or present is None or present.shape is None:
            return
        axis = tensor.shape.index("length")
        dim = present.shape[axis]
        if isinstance(dim, str) and dim not in _other_sizes(node, component, tensor.past):
            size = all_tokens(loop.id)
            owner = f"{node.scope.prefix}{node.id}"
            place = f"axis {axis} of '{present.name}'"
            self.dims.equal(End("", size, place), End(owner, dim, place), below(component.spec.at, "kv"))

    def check_rows(self, node: StageNode) -> None:
        """Logits have a row per new token, or one; a transducer's have axes of their own."""
        assert node.body is not None
        if node.spec.decode is None or node.spec.decode.walk is not None:
            return
        for read in node.body.ends:
            maker = next((made.spec.run for made in node.body.nodes if made.id == read.value.producer), None)
            shape = read.value.shape or ()
            if read.use.port != "logits" or maker is None or maker not in self.components or len(shape) != 3:
                continue
            if isinstance(shape[1], str) and self.components[maker].later is None:
                place = f"axis 1 of '{read.name}'"
                size = End("", new_tokens(node.body.id), "the rows of logits")
                self.dims.equal(size, End(f"{node.body.prefix}{read.value.producer}", shape[1], place), read.use.at)

    def check_component(self, component: Component) -> None:
        """Ports that a component names besides its state."""
        for key, names in (("pad", component.spec.pad), ("no_batch_axis", component.spec.no_batch_axis)):
            for name in names:
                if name not in component.inputs:
                    self._unknown(component, name, below(component.spec.at, key))

    def _unknown(self, component: Component, name: str, at: Location) -> str:
        """Report a name that is no input; returns the input that was meant, or the empty string."""
        free = [port for port in component.inputs if port not in component.past_ports]
        message = f"{component.file} has no input '{name}'"
        self.problems.error(at, "port.unknown_input", message, _meant(name, free))
        return next((port for port in free if f"'{port}'" in nearest(name, free)), "")

    def _check_unbound(self, node: StageNode, component: Component, bound: set[str]) -> None:
        at, states = below(node.spec.at, "inputs"), Problems()
        for name, port in component.inputs.items():
            taken = name in bound or name in component.past_ports or _is_logit_rows(port)
            if not taken and not (component.lacks_state and _could_be_state(port)):
                message = f"nothing is bound to the input '{name}' of {component.file}"
                found = states if _could_be_state(port) else self.problems
                found.error(at, "port.unbound", message, _suggestion(port, node.scope))
        self.problems.extend(folded(states, "input"))


def _expand(written: str, bound: Binding | tuple[Binding, ...]) -> Iterator[tuple[str, Binding]]:
    """The ports that a key binds: a family ``x.{i}`` counts up over its list."""
    for index, member in enumerate(bound if isinstance(bound, tuple) else (bound,)):
        name = written
        for slot in FAMILY_SLOTS if isinstance(bound, tuple) else ():
            name = name.replace(slot, str(index))
        yield name, member


def _is_not_tokens(item: tuple[str, Binding | tuple[Binding, ...]]) -> bool:
    """Sort key: what the new tokens go to comes first, as it says which symbol of the graph is their number."""
    bound = item[1]
    return isinstance(bound, tuple) or bound.text != "loop.tokens"


def _other_sizes(node: StageNode, component: Component, past: str) -> frozenset[Dim]:
    """Symbols that cannot be the number of all tokens: those of the new ones and of the past."""
    shapes = {name: frozenset(port.shape or ()) for name, port in component.later_inputs.items()}
    new = [
        shapes.get(name, frozenset()) for name, bound in node.spec.inputs.items() if not _is_not_tokens((name, bound))
    ]
    in_all = new[0].intersection(*new) if new else frozenset[Dim]()  # a mask bound to new tokens is the mistake
    return in_all | shapes.get(past, frozenset())


def _meant(name: str, ports: Collection[str]) -> str:
    """A hint at the port that was meant."""
    return nearest(name, ports) or (f"there are {one_of(ports)}" if ports else "it has none")


def _could_be_state(port: Port) -> bool:
    """Whether an unbound input is probably what a kv entry that matched nothing was meant for."""
    return is_float(port.dtype) and (port.shape is None or len(port.shape) > 1)


def _is_logit_rows(port: Port) -> bool:
    """Whether a graph takes the rows of logits that are asked for, which the engine feeds."""
    return port.name == LOGIT_ROWS and port.dtype == "int64" and (port.shape is None or len(port.shape) == 1)


def _suggestion(port: Port, scope: Scope) -> str:
    """What could be bound to a port, by its name."""
    if _could_be_state(port):
        return f"bind it under inputs:, or cover '{port.name}' by a kv entry if it is state"
    loop = next((around for around in scope.chain() if around.loop), None)
    meant = _USUAL.get(port.name, port.name)
    value = f"loop.{meant}" if loop is not None and meant in loop.loop else "..."
    return f"bind it: inputs: {{{port.name}: {value}}}"


def _check_result(node: StageNode, components: Mapping[str, Component], problems: Problems) -> None:
    """Logits are floats and end in the vocabulary: [b, tokens, V], or [b, V] of the last one; tokens are integers."""
    assert node.body is not None
    for read in node.body.ends:
        if read.use.port == "logits":
            fault = _logits_fault(read.value, node.body, components)
            if fault:
                problems.error(read.use.at, "port.logits", f"logits: '{read.name}' {fault}")
        elif read.use.port == "tokens" and read.value.dtype is not None and not is_integer(read.value.dtype):
            message = f"tokens: '{read.name}' is {read.value.dtype}, not an integer type"
            problems.error(read.use.at, "port.dtype", message)


def _logits_fault(value: Value, body: Scope, components: Mapping[str, Component]) -> str:
    """What is wrong with a value as logits, or the empty string."""
    if value.dtype is not None and not is_float(value.dtype):
        return f"is {value.dtype}, not a float type"
    if value.shape is None:
        return ""
    if len(value.shape) not in (2, 3):
        return f"has rank {len(value.shape)}, not [batch, tokens, vocabulary]"
    maker = next((node.spec.run for node in body.nodes if node.id == value.producer), None)
    ports = components[maker].inputs.values() if maker is not None and maker in components else ()
    varying = {dim for port in ports for dim in port.shape or () if isinstance(dim, str) and dim}
    if value.shape[-1] in varying:
        return f"has no vocabulary: its last axis '{value.shape[-1]}' is one of the graph's inputs"
    return ""

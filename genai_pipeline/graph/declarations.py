"""First pass over a package: what every stage, loop and group publishes, scope by scope.

Order in the file does not matter, so nothing is resolved before everything is declared. Problems found here: two
producers of one value. (Names used for two things were found with the references.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from genai_pipeline.graph.scope import Scope, ScopeKind, StageNode
from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.graph.uses import STATE_PREFIX
from genai_pipeline.graph.values import (
    Value,
    data_value,
    decode_results,
    input_values,
    item_values,
    loop_values,
    operation_value,
    parameter_value,
    port_type,
)
from genai_pipeline.metadata.model import PackageSpec, StageSpec
from genai_pipeline.metadata.operations import OperationSpec, known_operation
from genai_pipeline.problems import Location, Problems


def declare(spec: PackageSpec, signatures: Mapping[str, GraphSignature], problems: Problems) -> Scope:
    """The root scope and all below it; a component without a signature has outputs of any name."""
    return _Declarer(spec, signatures, problems).root()


class _Declarer:
    def __init__(self, spec: PackageSpec, signatures: Mapping[str, GraphSignature], problems: Problems) -> None:
        self.spec = spec
        self.signatures = signatures
        self.problems = problems

    def root(self) -> Scope:
        root = Scope("", "root")
        for input_spec in self.spec.inputs.values():
            self._declare(root, input_values(input_spec))
        self._declare(root, map(parameter_value, self.spec.parameters.values()))
        self._declare(root, map(data_value, self.spec.data.values()))
        self._declare_stages(root, self.spec.stages)
        return root

    def _declare_stages(self, scope: Scope, stages: Iterable[StageSpec]) -> None:
        for stage in stages:
            node = StageNode(stage, scope)
            scope.nodes.append(node)
            self._declare_inside(node)
            for port, value in self._published(node):
                published = value.listed() if node.items is not None else value
                self._declare(scope, [published])
                if scope.values[published.name] is published:  # the first producer keeps it
                    node.outputs[port] = published

    def _declare_inside(self, node: StageNode) -> None:
        """The scopes below a stage: that of its items, and its body."""
        stage, scope = node.spec, node.scope
        path = f"{scope.prefix}{stage.id}"
        if stage.for_each is not None and stage.kind != "group":
            node.items = Scope(f"{path}[]", "for_each", scope, stage)
            self._declare_items(node.items, stage)
        if stage.kind == "group":
            node.body = Scope(path, "for_each", scope, stage)
            self._declare_items(node.body, stage)
        elif stage.kind in ("decode", "iterate"):
            kind: ScopeKind = "decode" if stage.kind == "decode" else "iterate"
            node.body = Scope(path, kind, node.items or scope, stage)
            node.body.loop = {value.name.removeprefix("loop."): value for value in loop_values(stage, path)}
        if node.body is not None:
            self._declare_stages(node.body, stage.body)

    def _declare_items(self, items: Scope, stage: StageSpec) -> None:
        """The item of a ``for_each``. Inputs and their fields are declared first; lists that stages give are open."""
        assert stage.for_each is not None
        assert items.parent is not None
        found = items.parent.resolve(stage.for_each)
        owner = self.spec.inputs.get(stage.for_each.partition(".")[0])
        source = found[1] if found else Value(stage.for_each, stage.for_each, "stage", stage.at)
        self._declare(items, item_values(source, owner.modality if owner else None, items.id))

    def _published(self, node: StageNode) -> list[tuple[str, Value]]:
        """What a stage publishes in its scope, by port or by the name after its id."""
        stage, prefix = node.spec, node.scope.prefix
        if stage.kind in ("run", "op"):
            return self._stage_outputs(node)
        if stage.kind == "group":
            return [(value.name, self._outside(node, value).listed()) for value in self._inner_values(node)]
        loop = stage.decode or stage.iterate
        assert loop is not None
        found = [(v.name.partition(".")[2], v) for v in decode_results(stage, prefix)] if stage.decode else []
        for name, collect in loop.collect.items():
            found.append((name, self._loop_result(node, name, collect.value, collect.at)))
        for name, carry in loop.carry.items():
            if name not in loop.collect:
                found.append((name, self._loop_result(node, name, carry.next.text, carry.at)))
        return found

    def _stage_outputs(self, node: StageNode) -> list[tuple[str, Value]]:
        stage, prefix = node.spec, node.scope.prefix
        base = Value("", "", "stage", stage.at, producer=stage.id)
        found = []
        for port, name in stage.outputs.items():
            found.append((port, replace(base, key=f"{prefix}{name}", name=name, declared=True)))
        if stage.run is not None and stage.state == "advance":
            state = f"{STATE_PREFIX}{stage.run}"
            node.scope.values.setdefault(state, replace(base, key=f"{prefix}{state}", name=state, origin="state"))
        operation = known_operation(stage.op) if stage.op is not None else None
        if operation is not None:
            return list(_operation_outputs(operation, found, base, prefix))
        signature = self.signatures.get(stage.run or "")
        if signature is None:
            node.scope.open[stage.id] = replace(base, key=f"{prefix}{stage.id}", name=stage.id, open=True)
            return found
        for port in signature.outputs:
            if port not in stage.outputs:
                name = f"{stage.id}.{port}"
                found.append((port, replace(base, key=f"{prefix}{name}", name=name)))
        stacked = self.spec.components[stage.run or ""].batch == "stack"
        return [(port, _with_port(value, signature, port, stacked)) for port, value in found]

    def _inner_values(self, node: StageNode) -> list[Value]:
        assert node.body is not None
        node.scope.open.update(
            {
                f"{node.id}.{name}": replace(self._outside(node, value), open=True, is_list=True, type="list")
                for name, value in node.body.open.items()
            }
        )
        return [v for v in node.body.values.values() if v.producer is not None and v.origin != "state"]

    def _outside(self, node: StageNode, value: Value) -> Value:
        """A value of a group's body as the group publishes it."""
        name = f"{node.id}.{value.name}"
        key = f"{node.scope.prefix}{name}"
        return replace(value, key=key, name=name, producer=node.id, inner=value.key, declared=False)

    def _loop_result(self, node: StageNode, name: str, inner: str, at: Location) -> Value:
        assert node.body is not None
        found = node.body.resolve(inner)
        full = f"{node.id}.{name}"
        base = found[1] if found else Value("", "", "stage", at)
        return replace(
            base,
            key=f"{node.scope.prefix}{full}",
            name=full,
            origin="stage",
            at=at,
            shape=None,
            producer=node.id,
            declared=name in (node.spec.decode or node.spec.iterate).collect,  # type: ignore[union-attr]
            inner=base.key or None,
        )

    def _declare(self, scope: Scope, values: Iterable[Value]) -> None:
        for value in values:
            first = scope.values.setdefault(value.name, value)
            if first is not value:
                self.problems.error(
                    value.at,
                    "graph.two_producers",
                    f"'{value.name}' is produced twice: by {_maker(first)} and by {_maker(value)}",
                    "every value is produced once: rename one under outputs:",
                )


def _operation_outputs(
    operation: OperationSpec, named: Iterable[tuple[str, Value]], base: Value, prefix: str
) -> Iterator[tuple[str, Value]]:
    """What an operation publishes, with what its declaration says of it: under given names, else ``id.port``."""
    given = dict(named)
    for port, value in given.items():
        if operation.output(port) is None:
            yield port, value  # reported by the checks of operations
    for output in operation.outputs:
        name = f"{base.producer}.{output.name}"
        value = given.get(output.name) or replace(base, key=f"{prefix}{name}", name=name)
        yield output.name, operation_value(value, output)


def _with_port(value: Value, signature: GraphSignature, port: str, stacked: bool) -> Value:
    known = signature.outputs.get(port)
    if known is None:
        return value
    rows = stacked and known.batched
    return replace(value, type=port_type(known), dtype=known.dtype, shape=known.shape, rows=rows)


def _maker(value: Value) -> str:
    return f"stage '{value.producer}'" if value.producer else f"the {value.origin} '{value.name}'"

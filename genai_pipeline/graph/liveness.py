"""Which stages and values a package's outputs depend on, and which nobody reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from genai_pipeline.graph.linking import state_sources
from genai_pipeline.graph.scope import Read, Scope, StageNode
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.problems import Problems

_WORDS = re.compile(r"(?:parameters|data)\.(\w+)")


@dataclass(slots=True)
class Live:
    """What is needed: stages, and the keys of values that are read by a needed stage, loop or output."""

    stages: set[StageNode] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)


def find_live(root: Scope) -> Live:
    """Everything that declared outputs depend on."""
    live = Live()
    for read in root.ends:
        _need(read, live)
    return live


def _need(read: Read, live: Live) -> None:
    """Mark a value, and the stage that makes it."""
    live.keys.add(read.value.key)
    node = next((node for node in read.owner.nodes if node.id == read.value.producer), None)
    if node is None:
        return
    if node not in live.stages:
        live.stages.add(node)
        for needed in _reads_of(node):
            _need(needed, live)
    if node.body is not None and read.value.inner is not None:
        name = read.value.inner.removeprefix(node.body.prefix)
        inner = node.body.values.get(name)
        if inner is not None and inner.key not in live.keys:
            _need(Read(read.use, name, inner, node.body), live)


def _reads_of(node: StageNode) -> Iterator[Read]:
    yield from node.reads
    if node.body is not None:
        yield from node.body.ends


def check_unused(root: Scope, spec: PackageSpec, live: Live, problems: Problems) -> None:
    """Report what is declared and never read: stages, values, inputs, parameters, data.

    Only for packages whose names all mean something: else what is unread may be what was meant.
    """
    _check_stages(root, live, problems)
    read = {key for scope in root.subtree() for key in _keys_read(scope)} | _mentioned(spec)
    for name, owner in spec.inputs.items():
        if not any(key == name or key.startswith(f"{name}.") for key in read):
            problems.warning(owner.at, "graph.unused_input", f"nothing reads the input '{name}'", "remove it")
    for kind, declared in (("parameter", spec.parameters), ("data", spec.data)):
        prefix = "parameters" if kind == "parameter" else "data"
        for name, spec_of in declared.items():
            if f"{prefix}.{name}" not in read:
                problems.warning(spec_of.at, "graph.unused_input", f"nothing reads '{prefix}.{name}'", "remove it")


def _keys_read(scope: Scope) -> Iterator[str]:
    reads = [*scope.ends, *(read for node in scope.nodes for read in node.reads)]
    for read in reads:
        yield read.value.key
        if read.value.origin == "item":
            yield read.value.name


def _check_stages(scope: Scope, live: Live, problems: Problems) -> None:
    for node in scope.nodes:
        if node not in live.stages:
            message = f"no output depends on stage '{node.id}': it is left out"
            problems.warning(node.spec.at, "graph.unused_stage", message, "read what it publishes, or remove it")
            continue
        for value in node.outputs.values():
            if value.declared and value.key not in live.keys:
                problems.note(value.at, "graph.unused_value", f"nothing reads '{value.name}'", "it is not computed")
        if node.body is not None:
            _check_stages(node.body, live, problems)


def check_components(root: Scope, spec: PackageSpec, problems: Problems) -> None:
    """Report components that nothing runs, takes state from, drafts with or adapts."""
    run = {node.spec.run for scope in root.subtree() for node in scope.nodes if node.spec.run}
    if not run <= spec.components.keys():
        return  # a misspelt name is reported as such; what it meant to run is not unused
    sources = {source for name in run if name in spec.components for source in state_sources(spec.components[name])}
    sources |= {adapter.component for adapter in spec.adapters}
    if spec.speculative is not None and spec.speculative.propose is not None:
        sources |= {stage.run for stage in spec.speculative.propose.body if stage.run}
    for name, component in spec.components.items():
        if name not in run | sources:
            problems.warning(component.at, "graph.unused_component", f"no stage runs '{name}'", "remove it")


def _mentioned(spec: PackageSpec) -> set[str]:
    """``parameters.x`` and ``data.x`` in texts that others evaluate: preprocess programs and ``expand``."""
    found: set[str] = set()
    texts: list[Any] = [step.params for program in spec.programs.values() for step in program.steps]
    texts += [owner.placeholder.expand for owner in spec.inputs.values() if owner.placeholder]
    texts += [spec.parameters[name].values_from for name in spec.parameters]
    for text in texts:
        found |= {match.group(0) for match in _WORDS.finditer(str(text))}
    return found

"""Second pass over a package: every name that is read gets its value, or a problem that says what was meant."""

from __future__ import annotations

from collections.abc import Iterable

from genai_pipeline.graph.scope import MEASURES, Read, Scope, StageNode
from genai_pipeline.graph.uses import (
    STATE_PREFIX,
    Use,
    admission_uses,
    below,
    body_uses,
    named,
    output_uses,
    stage_uses,
)
from genai_pipeline.metadata.expressions import names
from genai_pipeline.metadata.model import ComponentSpec, PackageSpec
from genai_pipeline.problems import Location, Problems, nearest


class Linker:
    """Resolves the reads of a package's scopes."""

    def __init__(self, spec: PackageSpec, problems: Problems) -> None:
        self.spec = spec
        self.problems = problems

    def link_root(self, root: Scope) -> None:
        """Resolve everything, declared outputs and what admission reads included: those become ends of the root."""
        self.link(root)
        root.ends += self._resolve(root, output_uses(self.spec.outputs.values()))
        root.ends += self._resolve(root, admission_uses(self.spec))

    def link(self, scope: Scope) -> None:
        """Resolve everything that is read in a scope and below."""
        for node in scope.nodes:
            if node.spec.for_each is not None:
                list_use = named(node.spec.for_each, "for_each", below(node.spec.at, "for_each"))
                node.reads += self._resolve(scope, [list_use])
            node.reads += self._resolve(node.reading_scope, stage_uses(node.spec))
            node.reads += self._state_reads(node)
            if node.body is not None:
                node.body.ends += self._resolve(node.body, body_uses(node.spec))
                self.link(node.body)

    def _resolve(self, scope: Scope, uses: Iterable[Use]) -> list[Read]:
        found = []
        for use in uses:
            reads = [(name, scope.resolve(name)) for name in sorted(names(use.expr))]
            if use.tentative and any(target is None for _, target in reads):
                continue  # an op parameter that names no values is a literal
            for name, target in reads:
                if target is not None:
                    found.append(Read(use, *target))
                else:
                    self._undefined(scope, name, use)
        return found

    def _state_reads(self, node: StageNode) -> list[Read]:
        """The stages whose state this one takes: of the component named by ``from``, or of its own with read."""
        component = self.spec.components.get(node.spec.run or "")
        sources = state_sources(component) if component else {}
        if node.spec.state == "read" and node.spec.run is not None:
            sources[node.spec.run] = below(node.spec.at, "state")
        found = []
        for source, at in sources.items():
            name = f"{STATE_PREFIX}{source}"
            use, target = named(name, "kv.from", at), node.scope.resolve(name)
            if target is not None:
                found.append(Read(use, *target))
            elif source in self.spec.components:
                self.problems.error(
                    at,
                    "graph.state_not_visible",
                    f"stage '{node.id}' takes the state of '{source}', which no stage visible from it runs",
                    f"run '{source}' in the same scope or around it",
                )
        return found

    def _undefined(self, scope: Scope, name: str, use: Use) -> None:
        root = list(scope.chain())[-1]
        inner = next((s for s in root.subtree() if s not in scope.chain() and name in s.values), None)
        if inner is not None:
            message = f"'{name}' is a value inside '{inner.id}', not visible here"
            hint = "publish it: collect it in the loop, or read it as a list after for_each"
            self.problems.error(use.at, "graph.not_visible", message, hint)
            return
        base = next((name.removesuffix(measure) for measure in MEASURES if name.endswith(measure)), name)
        hint = self._suggest(scope, base)
        name, hint = (base, hint) if hint else (name, self._suggest(scope, name))
        if use.port.startswith("outputs."):
            self.problems.error(use.at, "graph.unreachable_output", f"no stage or input publishes '{name}'", hint)
        else:
            self.problems.error(use.at, "graph.undefined_value", f"nothing publishes '{name}'", hint)

    def _suggest(self, scope: Scope, name: str) -> str:
        for prefix in ("parameters", "data", "loop"):
            if scope.resolve(f"{prefix}.{name}") is not None:
                return f"did you mean '{prefix}.{name}'?"
        visible = scope.visible()
        owner = name.partition(".")[0]
        fields = sorted(word.removeprefix(f"{owner}.") for word in visible if word.startswith(f"{owner}."))
        return nearest(name, visible) or (f"'{owner}' publishes {', '.join(fields)}" if fields else "")


def state_sources(component: ComponentSpec) -> dict[str, Location]:
    """The components whose state or outputs a component takes, with the place that says so."""
    return {kv.source.partition(".")[0]: kv.at for kv in component.kv if kv.source}

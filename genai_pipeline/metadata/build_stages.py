"""From nodes to stages: runs, operations, loops and groups, with ids given or derived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from genai_pipeline.metadata.build_values import (
    bindings,
    fields,
    integer,
    listed,
    maybe_binding,
    named,
    plain,
    port_bindings,
    several,
)
from genai_pipeline.metadata.model import (
    CarrySpec,
    CollectSpec,
    DecodeSpec,
    GenerationSpec,
    GuideSpec,
    IterateSpec,
    OpCallSpec,
    OverSpec,
    StageSpec,
    StopSpec,
    TemplatePiece,
    TimesSpec,
    WalkSpec,
)
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.problems import Problems

PROPOSAL = "propose"  # id of the stage that ``speculative: propose`` becomes


def given_ids(stages: Node | None) -> Iterator[tuple[str, Node]]:
    """The ids written in one scope."""
    for stage in listed(stages):
        written = stage.get("id")
        if written is not None:
            yield written.plain(), written


def generation(node: Node | None) -> GenerationSpec | None:
    """Generation settings, of the package or of one loop."""
    if node is None:
        return None
    return GenerationSpec(node.named_at, fields(node.get("defaults")) or {}, fields(node.get("overrides")))


class StageBuilder:
    """Builds the stages of a package; ``shared`` are the names that ids may not take."""

    def __init__(self, shared: frozenset[str], problems: Problems) -> None:
        self._shared = shared
        self._problems = problems

    def stages(self, node: Node | None) -> tuple[StageSpec, ...]:
        """The stages of the root scope."""
        return self._scope(node, self._shared)

    def proposal(self, node: Node) -> StageSpec:
        """The decode body that drafts, as a decode stage of its own."""
        body = self._scope(node.get("body"), self._shared | {PROPOSAL})
        return StageSpec(node.named_at, PROPOSAL, "decode", decode=self._decode(node), body=body)

    def _scope(self, node: Node | None, outer: frozenset[str]) -> tuple[StageSpec, ...]:
        """The stages of one scope. Given ids come first, so that a derived one never takes a given one's place."""
        if node is None:
            return ()
        taken = outer | {name for name, _ in given_ids(node)}
        built = []
        for item in node.items:
            stage_id = plain(item.get("id")) or _derive(item, taken)
            taken |= {stage_id}
            built.append((item, stage_id))
        return tuple(self._stage(item, stage_id, taken) for item, stage_id in built)

    def _stage(self, node: Node, stage_id: str, outer: frozenset[str]) -> StageSpec:
        get = node.get
        kind = _kind(node)
        return StageSpec(
            at=node.at,
            id=stage_id,
            kind=kind,
            run=plain(get("run")),
            op=plain(get("op")),
            params=plain(get("with"), {}),
            inputs=port_bindings(get("inputs"), self._problems),
            outputs=plain(get("outputs"), {}),
            when=maybe_binding(get("when"), self._problems),
            for_each=plain(get("for_each")),
            guide=self._guide(get("guide")),
            state=plain(get("state"), "advance"),
            decode=self._decode(node) if kind == "decode" else None,
            iterate=self._iterate(node) if kind == "iterate" else None,
            body=self._scope(get("body"), outer),
        )

    def _guide(self, node: Node | None) -> GuideSpec | None:
        if node is None:
            return None
        negative = bindings(node.get("negative"), self._problems)
        return GuideSpec(node.named_at, self._bound(node, "scale"), negative)

    def _decode(self, node: Node) -> DecodeSpec:
        get = node.get
        prompt = get("prompt")
        template = prompt.get("template") if prompt is not None else None
        return DecodeSpec(
            at=node.at,
            prompt=maybe_binding(prompt, self._problems) if template is None else None,
            prompt_template=None if template is None else tuple(self._piece(item) for item in template.items),
            logits=plain(get("logits")),
            tokens=plain(get("tokens")),
            block=integer(get("block")),
            carry=self._carry(get("carry")),
            collect=_collect(get("collect")),
            positions=self._call(get("positions")),
            walk=self._walk(get("walk")),
            suppress=several(get("suppress")),
            begin_suppress=several(get("begin_suppress")),
            times=self._times(get("times")),
            stop=self._stop(get("stop")),
            tokenizer=plain(get("tokenizer")),
            generation=generation(get("generation")),
        )

    def _iterate(self, node: Node) -> IterateSpec:
        get = node.get
        return IterateSpec(
            at=node.at,
            count=maybe_binding(get("count"), self._problems),
            schedule=self._call(get("schedule")),
            over=self._over(get("over")),
            until=plain(get("until")),
            max=maybe_binding(get("max"), self._problems),
            carry=self._carry(get("carry")),
            collect=_collect(get("collect")),
        )

    def _carry(self, node: Node | None) -> Mapping[str, CarrySpec]:
        return {
            name: CarrySpec(child.named_at, self._bound(child, "initial"), self._bound(child, "next"))
            for name, child in named(node)
        }

    def _call(self, node: Node | None) -> OpCallSpec | None:
        if node is None:
            return None
        inputs = bindings(node.get("inputs"), self._problems)
        return OpCallSpec(node.named_at, plain(node.get("op")), plain(node.get("with"), {}), inputs)

    def _walk(self, node: Node | None) -> WalkSpec | None:
        if node is None:
            return None
        get = node.get
        return WalkSpec(
            at=node.named_at,
            rows=self._bound(node, "rows"),
            axis=int(plain(get("axis"))),
            blank=plain(get("blank")),
            advance=maybe_binding(get("advance"), self._problems),
            length=maybe_binding(get("length"), self._problems),
            max_per_row=integer(get("max_per_row")),
        )

    def _piece(self, node: Node) -> TemplatePiece:
        if not isinstance(node.value, dict):
            return TemplatePiece(plain(node))
        return TemplatePiece(plain(node.get("text")), self._bound(node, "when"))

    def _times(self, node: Node | None) -> TimesSpec | None:
        if node is None:
            return None
        get = node.get
        when = maybe_binding(get("when"), self._problems)
        return TimesSpec(node.named_at, plain(get("first")), plain(get("last")), plain(get("latest_start")), when)

    def _stop(self, node: Node | None) -> StopSpec | None:
        if node is None:
            return None
        return StopSpec(node.named_at, several(node.get("tokens")), maybe_binding(node.get("when"), self._problems))

    def _over(self, node: Node | None) -> OverSpec | None:
        if node is None:
            return None
        get = node.get
        return OverSpec(
            at=node.named_at,
            value=self._bound(node, "value"),
            axis=int(plain(get("axis"))),
            chunk=int(plain(get("chunk"))),
            before=integer(get("before")) or 0,
            after=integer(get("after")) or 0,
        )

    def _bound(self, node: Node, key: str) -> Any:
        """The binding under a key that the schema requires."""
        return maybe_binding(node.get(key), self._problems)


def _kind(node: Node) -> Any:
    if node.get("run") is not None:
        return "run"
    if node.get("op") is not None:
        return "op"
    return plain(node.get("loop"), "group")


def _derive(node: Node, taken: frozenset[str]) -> str:
    """An id from what the stage is: its component, operation or loop kind, numbered when that is taken."""
    base = str(plain(node.get("run")) or plain(node.get("op")) or plain(node.get("loop"), "group"))
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def _collect(node: Node | None) -> Mapping[str, CollectSpec]:
    return {name: _collected(child) for name, child in named(node)}


def _collected(node: Node) -> CollectSpec:
    if not isinstance(node.value, dict):
        return CollectSpec(node.named_at, plain(node))
    get = node.get
    return CollectSpec(node.named_at, plain(get("value")), integer(get("axis")), integer(get("scale")))

"""What a package needs of the program that runs it: every construct of its metadata that asks for something.

Needs follow from the constructs that are used, in the order of the file's sections.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from genai_pipeline.graph.scope import Scope, StageNode
from genai_pipeline.graph.uses import admission_uses, below, body_uses, stage_uses
from genai_pipeline.graph.values import is_list
from genai_pipeline.metadata.expressions import TokensLiteral, names, walk
from genai_pipeline.metadata.model import ComponentSpec, KvSpec, PackageSpec, SpanSpec, TokenizerSpec
from genai_pipeline.metadata.operations import SETTLED
from genai_pipeline.problems import Location

_TENSORS: Final = ("tensor", "items", "vector")
_TOP_LEVEL: Final = ("structured_output", "tools", "reasoning", "session", "adapters")


@dataclass(frozen=True, slots=True)
class Need:
    """A capability that a construct needs; ``what`` names the construct in messages."""

    capability: str
    at: Location
    what: str


def package_needs(root: Scope, spec: PackageSpec) -> Iterator[Need]:
    """Every need of a package, in the order of the file's sections."""
    yield from _input_needs(spec)
    yield from _output_needs(spec)
    for tokenizer in spec.tokenizers.values():
        yield from _tokenizer_needs(tokenizer)
    for data in spec.data.values():
        yield Need("data", data.at, f"data '{data.name}'")
    for component in spec.components.values():
        yield from _component_needs(component)
    for scope in root.subtree():
        yield from _shared_state(scope, spec)
        for node in scope.nodes:
            yield from _stage_needs(node, spec)
            yield from _loop_needs(node, spec)
    yield from _limit_needs(spec)
    yield from _text_needs(root, spec)
    yield from _top_level_needs(spec)


def _input_needs(spec: PackageSpec) -> Iterator[Need]:
    for name, owner in spec.inputs.items():
        what = f"the input '{name}'"
        kind = "tensor" if owner.modality in _TENSORS else owner.modality
        yield Need(f"input.{kind}", below(owner.at, "modality"), what)
        features = {
            "input.list": ("list" if owner.max_items is None else "max_items", is_list(owner)),
            "input.optional": ("required", not owner.required and owner.default is None),
            "input.live": ("live", owner.live),
            "input.program": ("program", owner.program is not None),
            "input.placeholder": ("placeholder", owner.placeholder is not None),
        }
        for capability, (key, used) in features.items():
            if used:
                yield Need(capability, below(owner.at, key), what)
    for parameter in spec.parameters.values():
        if parameter.values_from is not None:
            yield Need("parameter.from", below(parameter.at, "from"), f"the parameter '{parameter.name}'")


def _text_needs(root: Scope, spec: PackageSpec) -> Iterator[Need]:
    """Fields of texts that are not made unless somebody reads them."""
    fields = {f"{name}.{field}" for name in spec.inputs for field in ("mask", "types", "offsets")}
    for scope in root.subtree():
        for read in (*scope.ends, *(read for node in scope.nodes for read in node.reads)):
            if read.value.origin == "input" and read.value.key in fields and read.value.type == "tensor":
                owner = spec.inputs[read.value.key.rpartition(".")[0]]
                if owner.modality == "text":
                    yield Need("input.text.masks", read.use.at, f"'{read.name}'")


def _limit_needs(spec: PackageSpec) -> Iterator[Need]:
    for name, binding in (spec.limits.sizes if spec.limits else {}).items():
        yield Need("limits.sizes", binding.at, f"limits.{name}")
    for use in admission_uses(spec):
        if use.port.startswith("limits.") and names(use.expr):
            yield Need("limits.values", use.at, use.port)


def _output_needs(spec: PackageSpec) -> Iterator[Need]:
    for name, output in spec.outputs.items():
        kind = "tensor" if output.modality in _TENSORS else output.modality
        yield Need(f"output.{kind}", below(output.at, "modality"), f"the output '{name}'")
        if "segments" in output.options:
            yield Need("output.segments", below(output.at, "segments"), f"the output '{name}'")


def _tokenizer_needs(tokenizer: TokenizerSpec) -> Iterator[Need]:
    what = f"the tokenizer '{tokenizer.name}'"
    yield Need(f"tokenizer.{tokenizer.kind}", below(tokenizer.at, "kind"), what)
    if tokenizer.truncate is not None:
        yield Need("tokenizer.truncate", below(tokenizer.at, "truncate"), what)
    if tokenizer.pad_to is not None:
        yield Need("tokenizer.pad_to", below(tokenizer.at, "pad_to"), what)
    if tokenizer.infill is not None:
        yield Need("tokenizer.infill", tokenizer.infill.at, what)


def _component_needs(component: ComponentSpec) -> Iterator[Need]:
    what, at = f"the component '{component.name}'", component.at
    features = {
        "model.pair": ("model", component.model_later is not None),
        "model.variants": ("variants", bool(component.variants)),
        "model.borrowed": ("package", component.package is not None),
        "batch.pack": ("batch", component.batch == "pack"),
    }
    for capability, (key, used) in features.items():
        if used:
            yield Need(capability, below(at, key), what)
    if component.span is not None:
        yield Need(_span_need(component.span), component.span.at, what)
    for kv in component.kv:
        yield from _kv_needs(kv, what)


def _span_need(span: SpanSpec) -> str:
    """What it takes to run a component that limits the tokens of a run."""
    if "whole" in (span.first, span.later):
        return "span.whole" if {span.first, span.later} <= {1, "whole"} else "span"
    return "span.one" if span.first == span.later == 1 else "span"


def _kv_needs(kv: KvSpec, what: str) -> Iterator[Need]:
    yield Need(f"kv.{kv.update}", below(kv.at, "update"), what)
    features = {
        "history": ("kv.history", kv.history is not None),
        "window": ("kv.window", kv.window is not None),
        "from": ("kv.from", kv.source is not None),
        "keep": ("kv.session", kv.keep == "session"),
    }
    for key, (capability, used) in features.items():
        if used:
            yield Need(capability, below(kv.at, key), what)


def _stage_needs(node: StageNode, spec: PackageSpec) -> Iterator[Need]:
    stage = node.spec
    what = f"stage '{stage.id}'"
    if stage.op is not None and stage.op in SETTLED:
        yield Need(f"op.{stage.op}", below(stage.at, "op"), what)
    if stage.run is not None and not any(scope.kind == "decode" for scope in node.scope.chain()):
        yield Need("run.outside_loop", below(stage.at, "run"), what)
        component = spec.components.get(stage.run)
        if component is not None and component.kv:
            yield Need("state.outside_loop", component.kv[0].at, f"the component '{component.name}'")
    if stage.for_each is not None:
        yield Need("for_each", below(stage.at, "for_each"), what)
    if stage.guide is not None:
        yield Need("guide", stage.guide.at, what)
    if stage.when is not None:
        yield Need("when", stage.when.at, what)
    yield from _in_body_needs(node, what)
    if stage.state == "read":
        yield Need("state.read", below(stage.at, "state"), what)
    for use in (*stage_uses(stage), *body_uses(stage)):
        if any(isinstance(part, TokensLiteral) for part in walk(use.expr)):
            yield Need("binding.tokens", use.at, what)


def _in_body_needs(node: StageNode, what: str) -> Iterator[Need]:
    """What a stage of a decode body cannot do there: all rows of a run take the same stages."""
    stage = node.spec
    odd = next((place.at for place in (stage.when, stage.guide) if place is not None), stage.at)
    if node.scope.kind == "decode" and (odd is not stage.at or stage.for_each or stage.kind == "group"):
        yield Need("decode.body", odd, what)


def _loop_needs(node: StageNode, spec: PackageSpec) -> Iterator[Need]:
    stage = node.spec
    what = f"the loop '{stage.id}'"
    if stage.kind in ("decode", "iterate"):
        yield Need(f"loop.{stage.kind}", below(stage.at, "loop"), what)
        if any(scope.kind == "decode" for scope in node.scope.chain()):
            yield Need("loop.nested", below(stage.at, "loop"), what)
    if stage.iterate is not None:
        if stage.iterate.over is not None:
            yield Need("loop.iterate.over", stage.iterate.over.at, what)
        if stage.iterate.until is not None:
            yield Need("loop.iterate.until", below(stage.iterate.at, "until"), what)
        if stage.iterate.schedule is not None and stage.iterate.schedule.op in SETTLED:
            yield Need(f"op.{stage.iterate.schedule.op}", stage.iterate.schedule.at, what)
    if stage.decode is not None:
        yield from _decode_needs(node, what)
        yield from _span_needs(node, spec, what)


def _span_needs(node: StageNode, spec: PackageSpec, what: str) -> Iterator[Need]:
    """Components of one loop run on the same tokens: one cannot take a prompt whole and another in pieces."""
    ran = (spec.components.get(inner.spec.run or "") for inner in (node.body.nodes if node.body else ()))
    spans = {component.name: component.span for component in ran if component is not None and component.span}
    for key in ("first", "later"):
        said = {getattr(span, key) for span in spans.values()}
        if len(said) > 1 and "whole" in said:
            yield Need("span.mixed", next(iter(spans.values())).at, what)


def _decode_needs(node: StageNode, what: str) -> Iterator[Need]:
    decode, body = node.spec.decode, node.body
    assert decode is not None
    assert body is not None
    stop_when = decode.stop.when if decode.stop else None
    places = {
        "decode.template": below(decode.at, "prompt") if decode.prompt_template is not None else None,
        "decode.times": decode.times.at if decode.times is not None else None,
        "decode.tokens": below(decode.at, "tokens") if decode.tokens is not None else None,
        "decode.block": below(decode.at, "block") if decode.block is not None else None,
        "decode.carry": next((carry.at for carry in decode.carry.values()), None),
        "decode.collect": next((collect.at for collect in decode.collect.values()), None),
        "decode.positions": decode.positions.at if decode.positions else None,
        "decode.walk": decode.walk.at if decode.walk else None,
        "decode.stop_when": stop_when.at if stop_when else None,
        "decode.generation": decode.generation.at if decode.generation else None,
        "decode.after_choice": next((r.use.at for r in body.outer_reads() if r.value.origin == "choice"), None),
    }
    for capability, at in places.items():
        if at is not None:
            yield Need(capability, at, what)


def _shared_state(scope: Scope, spec: PackageSpec) -> Iterator[Need]:
    """A component with state that two stages of one package advance: whose state it is would depend on the order."""
    if scope.kind != "root":
        return
    seen: set[str] = set()
    for inner in scope.subtree():
        for node in inner.nodes:
            component = spec.components.get(node.spec.run or "")
            if component is None or not component.kv or node.spec.state == "read":
                continue
            if component.name in seen:
                yield Need("state.shared", node.spec.at, f"the component '{component.name}'")
            seen.add(component.name)


def _top_level_needs(spec: PackageSpec) -> Iterator[Need]:
    for key in _TOP_LEVEL:
        if getattr(spec, key):
            yield Need(key, below(spec.at, key), f"{key}:")
    for key in ("draft", "lookup", "propose"):
        if spec.speculative is not None and getattr(spec.speculative, key) is not None:
            yield Need(f"speculative.{key}", below(spec.speculative.at, key), f"speculative: {key}:")

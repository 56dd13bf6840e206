"""Values around a loop that the identities of its prompt's slots stand for, so that they need no digest of their own.

The features of an image enter a body through ``splice``, at the slots of the image's placeholder, and nowhere else; a
mask of these slots (``position_mask``) may be read beside it. A slot's identity has the digest of its item and of the
request's parameters, so two prefixes with the same tokens and identities have the same features before them, whatever
comes later. That holds for features that follow from their own item alone: made item by item (``for_each``), or of the
only item, by stages that draw nothing and read nothing else but parameters and data of the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from genai_pipeline.engine.feeds import local_key
from genai_pipeline.graph.plan import ExecutionPlan, ScopePlan, StagePlan
from genai_pipeline.graph.values import is_list
from genai_pipeline.metadata.expressions import Name
from genai_pipeline.metadata.model import Binding, InputSpec
from genai_pipeline.metadata.operations import OPERATIONS

_SPLICE, _MASK = "splice", "position_mask"
_CONSTANT = ("parameters.", "data.")


def identified_values(plan: ExecutionPlan, stage: StagePlan) -> frozenset[str]:
    """Keys of the values around a decode loop that are known by the identities in its prompt."""
    body, decode = stage.body, stage.spec.decode
    assert body is not None
    assert decode is not None
    if decode.prompt is None or not isinstance(decode.prompt.expr, Name):
        return frozenset()
    owner, _, field = stage.reads[decode.prompt.expr.text].rpartition(".")
    spec = plan.package.inputs.get(owner)
    if spec is None or spec.modality != "text" or field != "tokens":
        return frozenset()
    found: set[str] = set()
    others: set[str] = set()  # read in another way too
    for inner in body.stages:
        around = {key for key in inner.reads.values() if local_key(key, body.id) is None}
        if inner.spec.op == _MASK:  # of new tokens: which of them are slots, their identities say
            around -= {key for key in around if _item_of(plan, key) is not None}
        known = set(_spliced(plan, inner)) if inner.spec.op == _SPLICE else set()
        found |= known
        others |= around - known
    return frozenset(found - others)


def _spliced(plan: ExecutionPlan, stage: StagePlan) -> Iterator[str]:
    """What a splice reads around the loop, as far as the identities of its slots stand for it."""
    features, places = (list(_keys(stage, port)) for port in ("features", "at"))
    if len(features) != len(places):
        return
    for value, place in zip(features, places, strict=True):
        spec = _item_of(plan, place)
        if spec is not None:
            origin = _Origin(plan, spec.name)
            if origin.by_item(value) if is_list(spec) else origin.of_it(value):
                yield from (value, place)


def _item_of(plan: ExecutionPlan, place: str) -> InputSpec | None:
    """The input whose slots a value has the positions of; None for another value."""
    name = place.removesuffix(".positions")
    spec = plan.package.inputs.get(name)
    return spec if name != place and spec is not None and spec.placeholder is not None else None


def _keys(stage: StagePlan, port: str) -> Iterator[str]:
    """The keys that are bound to a port as they are; an empty one for an expression."""
    bound = stage.spec.inputs.get(port, ())
    for binding in (bound,) if isinstance(bound, Binding) else bound:
        yield stage.reads[binding.expr.text] if isinstance(binding.expr, Name) else ""


class _Origin:
    """Where values come from, seen from one input."""

    def __init__(self, plan: ExecutionPlan, name: str) -> None:
        self._plan = plan
        self._name = name
        self._makers: Mapping[str, tuple[str, StagePlan]] = dict(_makers(plan.root))

    def by_item(self, key: str) -> bool:
        """Whether a list has one value for each item of the input, made of that item alone."""
        if self._is_field(key):
            return True
        path, maker = self._makers.get(key, ("", None))
        if maker is None or maker.each is None or not self.by_item(maker.each):
            return False
        inner = f"{path}/" if maker.body is not None else f"{path}[]/"
        return all(self._repeats(stage) and self._within(stage, inner) for stage in _all(maker))

    def of_it(self, key: str) -> bool:
        """Whether a value is made of the one item of the input alone."""
        if self._is_field(key) or key.startswith(_CONSTANT):
            return True
        _, maker = self._makers.get(key, ("", None))
        if maker is None or maker.body is not None or not self._repeats(maker):
            return False
        return all(map(self.of_it, maker.reads.values()))

    def _is_field(self, key: str) -> bool:
        return key == self._name or key.startswith(f"{self._name}.")

    def _within(self, stage: StagePlan, inner: str) -> bool:
        """Whether a stage reads only what is of one item, and constants."""
        return all(key.startswith((inner, *_CONSTANT)) for key in stage.reads.values())

    def _repeats(self, stage: StagePlan) -> bool:
        """Whether a stage gives the same for the same inputs."""
        if stage.spec.kind == "run":
            component = self._plan.components[stage.spec.run or ""]
            return not component.signature.random_nodes and not component.states
        if stage.spec.kind == "op":
            return OPERATIONS[stage.spec.op or ""].deterministic
        return stage.spec.kind == "group"


def _makers(scope: ScopePlan) -> Iterator[tuple[str, tuple[str, StagePlan]]]:
    """(value key, (path, stage)) of everything that stages of a scope and below give, bodies of loops left out."""
    for stage in scope.stages:
        path = f"{scope.id}/{stage.id}" if scope.id else stage.id
        for key in stage.outputs.values():
            yield key, (path, stage)
        if stage.body is not None and stage.spec.kind == "group":
            yield from _makers(stage.body)


def _all(stage: StagePlan) -> Iterator[StagePlan]:
    """A stage and those of its body, at any depth."""
    yield stage
    for inner in stage.body.stages if stage.body is not None else ():
        yield from _all(inner)

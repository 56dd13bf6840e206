"""Text inputs: the item that a text becomes, cut and padded as its tokenizer declares, with the fields that are read.

Plain text that starts no decode loop and meets no chat template gets what the tokenizer's own post-processor puts
around every text ([CLS] ... [SEP]); a prompt gets one begin token, if that is wanted (see ``tokenizer``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from genai_pipeline.errors import RequestError
from genai_pipeline.graph.plan import ExecutionPlan, ScopePlan, StagePlan
from genai_pipeline.metadata.expressions import names
from genai_pipeline.metadata.model import InputSpec, PackageSpec, StageSpec, TokenizerSpec
from genai_pipeline.preprocess.items import Item
from genai_pipeline.preprocess.plain_encoder import EncodedText, encodable
from genai_pipeline.preprocess.tokenizer import Tokenizer

ALWAYS: Final = ("text", "tokens", "length")
ON_DEMAND: Final = ("mask", "types", "offsets")  # made only when something reads them
NOWHERE: Final = (0, 0)  # the characters that an added token covers


@dataclass(frozen=True, slots=True)
class TextInput:
    """How one input's texts become items; ``fields``: those on demand that are read."""

    spec: InputSpec
    tokenizer: Tokenizer | None
    declared: TokenizerSpec | None
    fields: frozenset[str]
    complete: bool  # whether the post-processor's tokens belong to a plain text

    @property
    def published(self) -> tuple[str, ...]:
        """The fields that its items have."""
        return (*ALWAYS, *(name for name in ON_DEMAND if name in self.fields))

    def plain(self, text: Any, where: str) -> Item:
        """The item of a plain text, in which control tokens have their meaning. Raises RequestError."""
        if not isinstance(text, str):
            raise RequestError(f"{where} must be a string, not {type(text).__name__}", param=where)
        encodable(text, where)
        if self.tokenizer is None:
            return self._item(text, EncodedText((), (), ()))
        most = None if self.declared is None else self.declared.truncate
        if self.complete:
            return self._item(text, self.tokenizer.encode_whole(text, complete=True, most=most))
        if not self.fields & {"types", "offsets"}:
            return self._item(text, _cut(EncodedText(self.tokenizer.encode_prompt(text), (), ()), most))
        encoded = self.tokenizer.encode_whole(text, complete=False)
        added = len(self.tokenizer.with_bos(encoded.ids)) - len(encoded.ids)
        ids, types = self.tokenizer.with_bos(encoded.ids), (0,) * added + encoded.types
        return self._item(text, _cut(EncodedText(ids, types, (NOWHERE,) * added + encoded.offsets), most))

    def prompt(self, text: str, ids: tuple[int, ...]) -> Item:
        """The item of a prompt whose tokens are there: of a conversation, of ids, of images. Raises RequestError."""
        if "offsets" in self.fields:
            message = f"'{self.spec.name}' is read by the places of its characters, which plain text has only"
            raise RequestError(message, param=self.spec.name, hint="give plain text, without messages, ids or images")
        most = None if self.declared is None else self.declared.truncate
        return self._item(text, _cut(EncodedText(ids, (0,) * len(ids), ()), most))

    def _item(self, text: str, encoded: EncodedText) -> Item:
        length = len(encoded.ids)
        padding = 0 if self.declared is None else self._padding(length)
        item: Item = {"text": text, "tokens": encoded.ids + (self._pad_id(),) * padding, "length": length}
        if "mask" in self.fields:
            item["mask"] = np.array([1] * length + [0] * padding, np.int64)
        if "types" in self.fields:
            item["types"] = np.array(encoded.types + (0,) * padding, np.int64)
        if "offsets" in self.fields:
            item["offsets"] = np.array(encoded.offsets + (NOWHERE,) * padding, np.int64).reshape(-1, 2)
        return item

    def _padding(self, length: int) -> int:
        """How many padding tokens bring a text to the declared length. Raises RequestError for a longer one."""
        assert self.declared is not None
        wanted = self.declared.pad_to
        if wanted is None:
            return 0
        if length > wanted:
            message = f"{self.spec.name} has {length} tokens, and every text of it has {wanted} at most"
            raise RequestError(message, param=self.spec.name, hint="shorten the text")
        return wanted - length

    def _pad_id(self) -> int:
        pad = None if self.tokenizer is None else self.tokenizer.pad_id
        return 0 if pad is None else pad  # a tokenizer without a pad token and with pad_to is refused at validation


def _cut(encoded: EncodedText, most: int | None) -> EncodedText:
    """The first tokens, as many as there may be."""
    if most is None or len(encoded.ids) <= most:
        return encoded
    return EncodedText(encoded.ids[:most], encoded.types[:most], encoded.offsets[:most])


def loop_texts(package: PackageSpec) -> frozenset[str]:
    """The text inputs whose tokens a decode loop starts from."""
    loops = [stage.decode for stage in _all_stages(package.stages) if stage.decode is not None]
    read = {name for loop in loops if loop.prompt is not None for name in names(loop.prompt.expr)}
    return frozenset(name for name in package.inputs if f"{name}.tokens" in read)


def has_decode_loop(package: PackageSpec) -> bool:
    """Whether the package generates tokens."""
    return any(stage.decode is not None for stage in _all_stages(package.stages))


def read_fields(plan: ExecutionPlan) -> frozenset[str]:
    """Everything that stages, loops and outputs read, as ``input.field`` and the like, without the scope."""
    return frozenset(key.rpartition("/")[2] for key in (*_keys(plan.root), *plan.outputs.values()))


def _keys(scope: ScopePlan) -> Iterator[str]:
    yield from scope.reads.values()
    for stage in scope.stages:
        yield from _stage_keys(stage)


def _stage_keys(stage: StagePlan) -> Iterator[str]:
    yield from stage.reads.values()
    if stage.each is not None:
        yield stage.each
    if stage.body is not None:
        yield from _keys(stage.body)


def _all_stages(stages: tuple[StageSpec, ...]) -> Iterator[StageSpec]:
    for stage in stages:
        yield stage
        yield from _all_stages(stage.body)

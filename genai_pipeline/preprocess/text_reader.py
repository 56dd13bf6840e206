"""Texts of a request: a plain prompt, a conversation, token ids or an infill, with the images and sounds among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.option_values import as_integer
from genai_pipeline.preprocess.answer_options import AnswerOptions
from genai_pipeline.preprocess.chat import ChatTemplate, require_template
from genai_pipeline.preprocess.control_pieces import cut_raw
from genai_pipeline.preprocess.infill import infill_text
from genai_pipeline.preprocess.items import Item
from genai_pipeline.preprocess.media_parts import stub
from genai_pipeline.preprocess.messages import user_turn
from genai_pipeline.preprocess.placeholders import (
    Items,
    Placeholders,
    Values,
    full_text,
    once,
    run_sizes,
    runs_of,
)
from genai_pipeline.preprocess.plain_encoder import encodable
from genai_pipeline.preprocess.reasoning_tags import find_reasoning, without_earlier_reasoning
from genai_pipeline.preprocess.slots import Placed, spread
from genai_pipeline.preprocess.text_inputs import TextInput
from genai_pipeline.problems import shown

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request gives for a text: exactly one of text, messages and tokens."""

    text: Any = None
    messages: Any = None
    tokens: Any = None
    system: Any = None  # beside a text
    raw: bool = False  # the text is sent as it is
    suffix: Any = None  # what is wanted stands between the text and this one


@dataclass(frozen=True, slots=True)
class Beside:
    """Items of the request that texts have placeholders for, and its parameters."""

    items: Items
    parameters: Values

    @property
    def salt(self) -> bytes:
        """What else may change the features that go into a slot."""
        return repr(sorted(self.parameters.items())).encode()


class TextReader:
    """Of one text input; ``placeholders`` are those that may stand in its prompts. Threads may share it."""

    def __init__(
        self, package: PackageSpec, input: TextInput, template: ChatTemplate | None, placeholders: Placeholders
    ) -> None:
        self._package = package
        self._input = input
        self._template = template
        self._placeholders = placeholders

    @property
    def input(self) -> TextInput:
        """How its texts become items."""
        return self._input

    @property
    def placeholders(self) -> Placeholders:
        """What may stand in its prompts for images and sounds."""
        return self._placeholders

    def read(self, ask: Ask, beside: Beside, answer: AnswerOptions, where: str) -> tuple[Item, Placed]:
        """The item of a text, and where in it images and sounds have their places. Raises RequestError."""
        if ask.tokens is not None:
            answer.check_untemplated()
            return self._tokens(ask.tokens, beside)
        if ask.messages is not None:
            return self._chat(ask.messages, beside, answer, conversation=True)
        if not isinstance(ask.text, str):
            raise RequestError(f"{where} must be a string, not {type(ask.text).__name__}", param=where)
        for what, written in ((where, ask.text), ("system", ask.system or "")):
            encodable(written, what)
        if ask.suffix is None and not ask.raw and self._templated(ask):
            return self._chat(self._turn(ask, beside), beside, answer, conversation=False)
        answer.check_untemplated()
        return self._raw(ask.text if ask.suffix is None else self._infill(ask), beside, where)

    def _templated(self, ask: Ask) -> bool:
        return ask.system is not None or (self._template is not None and not self._input.complete)

    def _turn(self, ask: Ask, beside: Beside) -> Messages:
        """A plain prompt as one turn of the user: what it is about first, the text after it."""
        stubs = [
            stub(self._package.inputs[name].modality) for name in self._placeholders.inputs for _ in beside.items[name]
        ]
        turns = user_turn(ask.text, ask.system)
        if stubs:
            turns[-1]["content"] = [*stubs, {"type": "text", "text": ask.text}]
        return turns

    def _raw(self, text: str, beside: Beside, where: str) -> tuple[Item, Placed]:
        tokenizer = self._input.tokenizer
        if tokenizer is None or not self._placeholders.inputs:
            item = self._input.plain(text, where)
            return item, Placed(item["tokens"])
        pieces = self._placeholders.expand(cut_raw(tokenizer, text), beside.items, beside.parameters, "the prompt")
        written = "".join(piece.text for piece in once(pieces))
        if not runs_of(pieces):
            item = self._input.plain(written, where)
            return item, self._placeholders.placed(item["tokens"], self._sizes(beside), beside.items, beside.salt)
        ids = spread(tokenizer.encode_prompt(written), runs_of(pieces))
        return self._placed(full_text(pieces), ids, run_sizes(pieces, beside.items), beside)

    def _chat(
        self, messages: Messages, beside: Beside, answer: AnswerOptions, *, conversation: bool
    ) -> tuple[Item, Placed]:
        template = require_template(self._template, conversation=conversation)
        rendered = template.render_chat(self._replayed(messages, template), **answer.for_template(template))
        if not self._placeholders.inputs:
            return self._placed(rendered.text, template.encode(rendered.pieces), {}, beside)
        pieces = self._placeholders.expand(
            rendered.pieces, beside.items, beside.parameters, "what the chat template wrote"
        )
        ids = spread(template.encode(once(pieces)), runs_of(pieces))
        return self._placed(full_text(pieces), ids, run_sizes(pieces, beside.items), beside)

    def _tokens(self, tokens: Any, beside: Beside) -> tuple[Item, Placed]:
        tokenizer = self._input.tokenizer
        ids = known_tokens(tokens, None if tokenizer is None else tokenizer.vocab_size)
        text = "" if tokenizer is None else tokenizer.decode(ids, skip_special=False)
        return self._placed(text, ids, self._sizes(beside), beside)

    def _sizes(self, beside: Beside) -> dict[str, list[int]]:
        return self._placeholders.sizes(beside.items, beside.parameters)

    def _placed(
        self, text: str, ids: tuple[int, ...], sizes: Mapping[str, Sequence[int]], beside: Beside
    ) -> tuple[Item, Placed]:
        placed = self._placeholders.placed(ids, sizes, beside.items, beside.salt)
        item = self._input.prompt(text, ids)
        if placed.identities and placed.identities[-1][1] > item["length"]:
            message = f"the prompt is cut to {item['length']} tokens, and images or sounds stand after that"
            raise RequestError(message, param=self._input.spec.name, hint="give fewer or smaller ones, or less text")
        return item, placed

    def _replayed(self, messages: Messages, template: ChatTemplate) -> Messages:
        """The conversation without earlier reasoning; anything that is none goes on to where it is refused."""
        if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
            return messages
        tags = find_reasoning(self._package.reasoning, template.texts)
        opened = tags is not None and tags.opened_by(template.generation_prompt())
        return without_earlier_reasoning(messages, tags, opened=opened)

    def _infill(self, ask: Ask) -> str:
        """The raw prompt for what stands between two texts."""
        if not isinstance(ask.suffix, str):
            raise RequestError(f"suffix must be a string, not {type(ask.suffix).__name__}", param="suffix")
        declared = self._input.declared
        infill = None if declared is None else declared.infill
        return infill_text(infill, self._input.tokenizer, ask.text, ask.suffix)


def known_tokens(tokens: Any, size: int | None) -> tuple[int, ...]:
    """Token ids of a vocabulary of ``size`` tokens (None: not known). Raises RequestError."""
    ids = _ids(tokens)
    for token in ids:
        if token < 0 or (size is not None and token >= size):
            raise RequestError(f"token {shown(token)} is outside the vocabulary, [0, {size})", param="tokens")
    return ids


def _ids(tokens: Any) -> tuple[int, ...]:
    """Token ids as plain integers: of a list, a tuple or an array of one axis."""
    if isinstance(tokens, str | bytes) or not hasattr(tokens, "__iter__"):
        raise RequestError(f"tokens must be a list of ids, not {shown(tokens)}", param="tokens")
    ids = []
    for given in tokens:
        token = as_integer(given)
        if token is None:
            raise RequestError(f"tokens must be a list of ids, not {shown(given)}", param="tokens")
        ids.append(token)
    return tuple(ids)

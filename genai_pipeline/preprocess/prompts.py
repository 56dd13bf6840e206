"""Normalises what a caller gives into the input values of a package: text, conversations, token ids, parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.model import InputSpec, PackageSpec
from genai_pipeline.option_values import as_integer, boolean
from genai_pipeline.preprocess.answer_options import AnswerOptions
from genai_pipeline.preprocess.chat import ChatTemplate, require_template
from genai_pipeline.preprocess.infill import infill_text
from genai_pipeline.preprocess.messages import user_turn
from genai_pipeline.preprocess.parameters import read_parameters
from genai_pipeline.preprocess.plain_encoder import encodable
from genai_pipeline.preprocess.reasoning_tags import find_reasoning, without_earlier_reasoning
from genai_pipeline.preprocess.token_bytes import TokenBytes
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import nearest, one_of

Messages = Sequence[Mapping[str, Any]]
_PLAIN_ANSWER = AnswerOptions()
DEFAULT_TOKENIZER = "default"


class PromptReader:
    """Turns requests into values by name ("prompt.tokens", "parameters.x"); threads may share it."""

    def __init__(self, package: PackageSpec, tokenizers: Mapping[str, Tokenizer]) -> None:
        self._package = package
        self.tokenizers = tokenizers
        self._token_bytes: dict[str, TokenBytes] = {}
        self._templates = {
            name: ChatTemplate.load(package.root, spec, tokenizers[name]) for name, spec in package.tokenizers.items()
        }

    @property
    def templates(self) -> Mapping[str, ChatTemplate | None]:
        """The chat template of each tokenizer, None for one that has none."""
        return self._templates

    @property
    def main_input(self) -> str:
        """The text input that a bare prompt means. Raises RequestError when that is not clear."""
        return self._main_input().name

    @property
    def reasons(self) -> bool:
        """Whether answers may begin with reasoning."""
        templates = [template for template in self._templates.values() if template is not None]
        return any(find_reasoning(self._package.reasoning, template.texts) for template in templates)

    def prompt(
        self,
        prompt: str | None = None,
        *,
        messages: Messages | None = None,
        tokens: Sequence[int] | None = None,
        system: str | None = None,
        raw: bool = False,
        suffix: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        answer: AnswerOptions = _PLAIN_ANSWER,
    ) -> dict[str, Any]:
        """Values of a request that gives its text as exactly one of prompt, messages and tokens.

        One that gives none of them means the default of the main input, where that has one. With a ``suffix``, what
        stands between prompt and suffix is asked for, as a raw prompt.
        """
        spec = self._main_input()
        given = {"prompt": prompt, "messages": messages, "tokens": tokens}
        named = [name for name, value in given.items() if value is not None]
        if not named and spec.default is not None:
            prompt, named = spec.default, ["prompt"]
        if len(named) != 1:
            what = " and ".join(named) if named else "none of them"
            raise RequestError(f"give exactly one of prompt, messages and tokens, not {what}", param="prompt")
        _check_plain(system, suffix, boolean("raw", raw), plain=prompt is not None)
        if tokens is not None:
            answer.check_untemplated()
            values = self._tokens(spec, tokens)
        elif messages is not None:
            values = self._chat(spec, messages, answer)
        elif suffix is not None:
            values = self._text(spec, self._infill(spec, prompt, suffix), None, answer, raw=True)
        else:
            values = self._text(spec, prompt, system, answer, raw=raw)
        others = {name: None for name in self._package.inputs if name != spec.name}
        return {**values, **self._defaults(others), **read_parameters(self._package.parameters, parameters or {})}

    def text(self, tokens: Sequence[int], *, skip_special: bool) -> str:
        """The text of tokens of the main input. Raises RequestError for ids outside the vocabulary."""
        spec = self._main_input()
        tokenizer = self.tokenizers.get(spec.tokenizer or DEFAULT_TOKENIZER)
        if tokenizer is None:
            raise RequestError("this package has no tokenizer", param="tokens")
        return tokenizer.decode(_known(tokens, tokenizer.vocab_size), skip_special=skip_special)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token of the main input writes, a control token its text. Raises RequestError."""
        name = self._main_input().tokenizer or DEFAULT_TOKENIZER
        if name not in self._token_bytes:
            if name not in self.tokenizers:
                raise RequestError("this package has no tokenizer", param="tokens")
            self._token_bytes[name] = TokenBytes(self.tokenizers[name])
        return self._token_bytes[name][token]

    def inputs(self, given: Mapping[str, Any], answer: AnswerOptions = _PLAIN_ANSWER) -> dict[str, Any]:
        """Values of a request that names declared inputs and parameters; a list of messages is a conversation."""
        inputs, parameters = self._package.inputs, self._package.parameters
        for name in given:
            if name not in inputs and name not in parameters:
                known = [*inputs, *parameters]
                hint = nearest(name, known) or f"it takes: {one_of(known)}"
                raise RequestError(f"this package has no input '{name}'", param=name, hint=hint)
        values: dict[str, Any] = {}
        for name, spec in inputs.items():
            value = given.get(name)
            if value is None:
                values.update(self._defaults({name: None}))
            elif isinstance(value, str):
                values.update(self._text(spec, value, None, answer, raw=False))
            else:
                values.update(self._chat(spec, value, answer))
        chosen = {name: value for name, value in given.items() if name in parameters}
        return {**values, **read_parameters(parameters, chosen)}

    def _main_input(self) -> InputSpec:
        """The text input that a bare prompt means: the only one, or the one named ``prompt``."""
        texts = [spec for spec in self._package.inputs.values() if spec.modality == "text"]
        if len(texts) == 1:
            return texts[0]
        named = [spec for spec in texts if spec.name == "prompt"]
        if named:
            return named[0]
        what = f"text inputs {one_of(spec.name for spec in texts)}" if texts else "no text input"
        raise RequestError(
            f"this package has {what}, so a bare prompt is not clear", param="prompt", hint="use run() with names"
        )

    def _defaults(self, names: Mapping[str, None]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in names:
            spec = self._package.inputs[name]
            if spec.default is not None:
                values.update(self._text(spec, spec.default, None, _PLAIN_ANSWER, raw=False))
            elif spec.required:
                raise RequestError(f"input '{name}' is required", param=name)
        return values

    def _text(
        self, spec: InputSpec, text: Any, system: str | None, answer: AnswerOptions, *, raw: bool
    ) -> dict[str, Any]:
        if not isinstance(text, str):
            raise RequestError(f"{spec.name} must be a string, not {type(text).__name__}", param=spec.name)
        for what, written in ((spec.name, text), ("system", system or "")):
            encodable(written, what)
        name = spec.tokenizer or DEFAULT_TOKENIZER
        if not raw and (self._templates.get(name) is not None or system is not None):
            return self._chat(spec, user_turn(text, system), answer)
        answer.check_untemplated()
        tokenizer = self.tokenizers.get(name)
        return _published(spec, text, () if tokenizer is None else tokenizer.encode_prompt(text))

    def _chat(self, spec: InputSpec, messages: Messages, answer: AnswerOptions) -> dict[str, Any]:
        template = require_template(self._templates.get(spec.tokenizer or DEFAULT_TOKENIZER))
        variables = answer.for_template(template)
        rendered = template.render_chat(self._replayed(messages, template), **variables)
        return _published(spec, rendered.text, template.encode(rendered))

    def _replayed(self, messages: Messages, template: ChatTemplate) -> Messages:
        """The conversation without earlier reasoning; anything that is none goes on to where it is refused."""
        if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
            return messages
        tags = find_reasoning(self._package.reasoning, template.texts)
        opened = tags is not None and tags.opened_by(template.generation_prompt())
        return without_earlier_reasoning(messages, tags, opened=opened)

    def _infill(self, spec: InputSpec, before: Any, after: Any) -> Any:
        """The raw prompt for what stands between two texts; a prompt that is no text goes on to where it is refused."""
        if not isinstance(after, str):
            raise RequestError(f"suffix must be a string, not {type(after).__name__}", param="suffix")
        if not isinstance(before, str):
            return before
        name = spec.tokenizer or DEFAULT_TOKENIZER
        declared = self._package.tokenizers.get(name)
        infill = None if declared is None else declared.infill
        return infill_text(infill, self.tokenizers.get(name), before, after)

    def _tokens(self, spec: InputSpec, tokens: Sequence[int]) -> dict[str, Any]:
        tokenizer = self.tokenizers.get(spec.tokenizer or DEFAULT_TOKENIZER)
        ids = _known(tokens, None if tokenizer is None else tokenizer.vocab_size)
        return _published(spec, "" if tokenizer is None else tokenizer.decode(ids, skip_special=False), ids)


def _check_plain(system: Any, suffix: Any, raw: bool, *, plain: bool) -> None:
    """Refuse what goes with a plain prompt only, where there is none."""
    if suffix is not None and not plain:
        raise RequestError("suffix goes with a plain prompt, not with messages or tokens", param="suffix")
    if suffix is not None and system is not None:
        hint = "what is filled in is asked for without the chat template"
        raise RequestError("suffix and system exclude each other", param="system", hint=hint)
    if raw and not plain:
        hint = "messages are rendered by the chat template, tokens are sent as they are"
        raise RequestError("raw goes with a plain prompt, not with messages or tokens", param="raw", hint=hint)
    if system is None:
        return
    if raw or not plain:
        raise RequestError("system goes with a plain prompt that the chat template renders", param="system")
    if not isinstance(system, str):
        raise RequestError(f"system must be a string, not {type(system).__name__}", param="system")


def _ids(tokens: Any) -> tuple[int, ...]:
    """Token ids as plain integers: of a list, a tuple or an array of one axis."""
    if isinstance(tokens, str | bytes) or not hasattr(tokens, "__iter__"):
        raise RequestError(f"tokens must be a list of ids, not {tokens!r}", param="tokens")
    ids = []
    for given in tokens:
        token = as_integer(given)
        if token is None:
            raise RequestError(f"tokens must be a list of ids, not {given!r}", param="tokens")
        ids.append(token)
    return tuple(ids)


def _known(tokens: Any, size: int | None) -> tuple[int, ...]:
    """Token ids of a vocabulary of ``size`` tokens (None: not known)."""
    ids = _ids(tokens)
    for token in ids:
        if token < 0 or (size is not None and token >= size):
            raise RequestError(f"token {token} is outside the vocabulary, [0, {size})", param="tokens")
    return ids


def _published(spec: InputSpec, text: str, tokens: tuple[int, ...]) -> dict[str, Any]:
    """What a text input publishes."""
    return {f"{spec.name}.text": text, f"{spec.name}.tokens": tokens, f"{spec.name}.length": len(tokens)}

"""Turns what a request gives into the values of a package's inputs: texts, conversations, ids, images, sounds, tensors.

Values have keys like ``prompt.tokens``, ``images.pixels`` and ``parameters.x`` (docs/media_inputs.md). A text in which
images or sounds have places has ``prompt.identities`` too: what stands there, as half-open ranges of slots with a
digest each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.build import DEFAULT_TOKENIZER
from genai_pipeline.metadata.model import InputSpec, PackageSpec
from genai_pipeline.option_values import boolean
from genai_pipeline.preprocess.answer_options import AnswerOptions
from genai_pipeline.preprocess.chat import ChatTemplate
from genai_pipeline.preprocess.choices import with_choices
from genai_pipeline.preprocess.given_inputs import MEDIA, GivenInputs, absent, sources_of
from genai_pipeline.preprocess.items import DIGEST, Item, check_count, publish
from genai_pipeline.preprocess.media_parts import MediaPart, take_media
from genai_pipeline.preprocess.package_texts import PackageTexts, placeholder_texts
from genai_pipeline.preprocess.parameters import read_parameters, together
from genai_pipeline.preprocess.reasoning_tags import find_reasoning
from genai_pipeline.preprocess.slots import Placed
from genai_pipeline.preprocess.text_reader import Ask, Beside, Messages, known_tokens
from genai_pipeline.preprocess.token_bytes import TokenBytes
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import nearest, one_of

IDENTITIES: Final = "identities"  # of a text: "prompt.identities"
_PLAIN_ANSWER: Final = AnswerOptions()
_NO_READS: Final[frozenset[str]] = frozenset()
Sources = Mapping[str, Sequence[tuple[str, Any]]]  # by input: each source with its name for errors


class PromptReader:
    """Turns requests into values by key ("prompt.tokens", "parameters.x"); threads may share it."""

    def __init__(
        self, package: PackageSpec, tokenizers: Mapping[str, Tokenizer], read: frozenset[str] = _NO_READS
    ) -> None:
        """``read``: what stages read, as ``input.field``: some fields of texts are made only then."""
        self._package = package
        self.tokenizers = tokenizers
        self._token_bytes: dict[str, TokenBytes] = {}
        self._parameters = with_choices(package)
        self._given = GivenInputs(package)
        self._texts = PackageTexts(package, tokenizers, read)
        self._others = {name: spec for name, spec in package.inputs.items() if spec.modality != "text"}
        self._media = _media_inputs(package)
        self._placeholder_modalities = {package.inputs[name].modality for name in placeholder_texts(package)[1]}

    @property
    def templates(self) -> Mapping[str, ChatTemplate | None]:
        """The chat template of each tokenizer, None for one that has none."""
        return self._texts.templates

    @property
    def main_input(self) -> str:
        """The text input that a bare prompt means. Raises RequestError when that is not clear."""
        return self._texts.main.name

    @property
    def reasons(self) -> bool:
        """Whether answers may begin with reasoning."""
        templates = [template for template in self.templates.values() if template is not None]
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
        images: Any = None,
        audio: Any = None,
        parameters: Mapping[str, Any] | None = None,
        answer: AnswerOptions = _PLAIN_ANSWER,
    ) -> dict[str, Any]:
        """Values of a request that gives its text as exactly one of prompt, messages and tokens.

        One that gives none of them means the default of the main input, where that has one. With a ``suffix``, what
        stands between prompt and suffix is asked for, as a raw prompt. ``images`` and ``audio`` go to the inputs of
        these modalities.
        """
        spec = self._texts.main
        given = {"prompt": prompt, "messages": messages, "tokens": tokens}
        named = [name for name, value in given.items() if value is not None]
        if not named and spec.default is not None:
            prompt, named = spec.default, ["prompt"]
        if len(named) != 1:
            what = " and ".join(named) if named else "none of them"
            raise RequestError(f"give exactly one of prompt, messages and tokens, not {what}", param="prompt")
        _check_plain(system, suffix, boolean("raw", raw), plain=prompt is not None)
        media = {**self._option("images", "image", images), **self._option("audio", "audio", audio)}
        ask = Ask(prompt, messages, tokens, system, raw, suffix)
        chosen = read_parameters(self._parameters, {} if parameters is None else parameters)
        return self._values({spec.name: ask}, media, chosen, answer)

    def inputs(
        self,
        given: Mapping[str, Any],
        parameters: Mapping[str, Any] | None = None,
        answer: AnswerOptions = _PLAIN_ANSWER,
    ) -> dict[str, Any]:
        """Values of a request that names declared inputs and parameters; a list of messages is a conversation.

        Parameters may stand among the inputs, or by themselves.
        """
        inputs, declared = self._package.inputs, self._parameters
        for name in given:
            if name not in inputs and name not in declared:
                known = [*inputs, *declared]
                hint = nearest(name, known) or f"it takes: {one_of(known)}"
                raise RequestError(f"this package has no input '{name}'", param=name, hint=hint)
        asks = {
            name: Ask(value)
            if isinstance(value, str) or self._texts.is_list(name)
            else Ask(messages=_turns(name, value))
            for name, value in given.items()
            if name in inputs and name not in self._others and value is not None
        }
        others = {name: value for name, value in given.items() if name in self._others and value is not None}
        chosen = {name: value for name, value in given.items() if name in declared}
        return self._values(asks, others, read_parameters(declared, together(chosen, parameters)), answer)

    def text(self, tokens: Sequence[int], *, skip_special: bool) -> str:
        """The text of tokens of the main input. Raises RequestError for ids outside the vocabulary."""
        tokenizer = self._texts.main_tokenizer
        return tokenizer.decode(known_tokens(tokens, tokenizer.vocab_size), skip_special=skip_special)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token of the main input writes, a control token its text. Raises RequestError."""
        name = self._texts.main.tokenizer or DEFAULT_TOKENIZER
        if name not in self._token_bytes:
            self._token_bytes[name] = TokenBytes(self._texts.main_tokenizer)
        return self._token_bytes[name][token]

    def _option(self, option: str, modality: str, given: Any) -> dict[str, Any]:
        """What ``images`` or ``audio`` gives, for the input it means."""
        if given is None:
            return {}
        return {self._media_input(modality, option): given}

    def _media_input(self, modality: str, param: str) -> str:
        """The input that an image or a sound means. Raises RequestError when there is none, or when it is not clear."""
        names = self._media.get(modality, ())
        if len(names) == 1:
            return names[0]
        if not names:
            takes = one_of(sorted({spec.modality for spec in self._package.inputs.values()}))
            raise RequestError(f"this package takes no {modality}", param=param, hint=f"it takes: {takes}")
        hint = "give them by name, with run()"
        raise RequestError(f"this package has the {modality} inputs {one_of(names)}", param=param, hint=hint)

    def _values(
        self, asks: Mapping[str, Ask], given: Mapping[str, Any], parameters: Mapping[str, Any], answer: AnswerOptions
    ) -> dict[str, Any]:
        """All values: of media first, since texts have places for them."""
        asks, parts = self._without_media(asks)
        sources = self._sources(given, parts)
        items = {
            name: self._given.items(spec, sources.get(name, ()), parameters) for name, spec in self._others.items()
        }
        beside = Beside(items, parameters)
        values: dict[str, Any] = {}
        for name in self._texts.names:
            ask = asks.get(name)
            if ask is None and (default := absent(self._package.inputs[name])) is not None:
                ask = Ask(default)
            read, placed = self._texts.read(name, ask, beside, answer)
            values.update(read)
            values.update(_placed_values(name, placed, items))
        for name, spec in self._others.items():
            fields = (*self._given.fields(spec), *(("positions",) if spec.placeholder is not None else ()), DIGEST)
            values.update(publish(spec, items[name], fields, many=self._texts.is_list(name)))
        return {**values, **parameters}

    def _sources(self, given: Mapping[str, Any], parts: Mapping[str, list[MediaPart]]) -> Sources:
        """The sources of every input that has some: of parts of messages, and of what is given beside them."""
        found: dict[str, Sequence[tuple[str, Any]]] = {}
        for name, spec in self._others.items():
            value = given[name] if name in given else None if parts.get(name) else absent(spec)
            many = self._texts.is_list(name)
            sources = [] if value is None else sources_of(spec, value, many=many)
            if name in parts:
                sources = _merged(spec, parts[name], sources)
                check_count(spec, len(sources), many=many or not sources)
            if sources:
                found[name] = sources
        return found

    def _without_media(self, asks: Mapping[str, Ask]) -> tuple[dict[str, Ask], dict[str, list[MediaPart]]]:
        """The asks with conversations that hold no sources, and the parts that had them, by input.

        Inputs with places in a conversation are among them, even without any part.
        """
        taken = {modality: modality in self._placeholder_modalities for modality in self._media}
        found: dict[str, list[MediaPart]] = {}
        without = dict(asks)
        for name, ask in asks.items():
            if ask.messages is None:
                continue
            messages, parts = take_media(ask.messages, taken)
            found.update({owner: [] for owner in self._texts.placeholders_in(name)})
            without[name] = Ask(messages=messages, system=ask.system)
            for part in parts:
                found.setdefault(self._media_input(part.modality, part.where), []).append(part)
        return without, found


def _media_inputs(package: PackageSpec) -> dict[str, tuple[str, ...]]:
    """The inputs of each modality that images and sounds may mean."""
    found: dict[str, tuple[str, ...]] = {}
    for name, spec in package.inputs.items():
        if spec.modality in MEDIA:
            found[spec.modality] = (*found.get(spec.modality, ()), name)
    return found


def _merged(spec: InputSpec, parts: list[MediaPart], beside: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """One source for each part: its own, or the next one beside the messages. Raises RequestError if none is left."""
    unfilled = sum(part.source is None for part in parts)
    if unfilled != len(beside):
        message = f"the messages have {unfilled} parts that stand for {spec.name}, and {len(beside)} are given"
        hint = f'{{"type": "{spec.modality}"}} in a message stands for one that is given beside the messages'
        raise RequestError(message, param=spec.name, hint=hint)
    following = iter(beside)
    return [next(following) if part.source is None else (part.where, part.source) for part in parts]


def _placed_values(name: str, placed: Placed, items: Mapping[str, list[Item]]) -> dict[str, Any]:
    """The identities of a text with places, whose positions its items get."""
    for owner, positions in placed.positions.items():
        for item, slots in zip(items[owner], positions, strict=True):
            item["positions"] = slots
    return {f"{name}.{IDENTITIES}": placed.identities} if placed.positions else {}


def _turns(name: str, value: Any) -> Any:
    """What is given for a text input in place of a text: a conversation. Raises RequestError naming the input."""
    if not isinstance(value, Sequence):
        message = f"{name} must be a text or a list of messages, not {type(value).__name__}"
        raise RequestError(message, param=name)
    return value


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

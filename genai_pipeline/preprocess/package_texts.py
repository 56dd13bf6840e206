"""The text inputs of a package: which one a bare prompt means, which one has places for images, and reading them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from genai_pipeline.errors import RequestError
from genai_pipeline.graph.values import is_list
from genai_pipeline.metadata.build import DEFAULT_TOKENIZER
from genai_pipeline.metadata.model import InputSpec, PackageSpec
from genai_pipeline.preprocess.answer_options import AnswerOptions
from genai_pipeline.preprocess.chat import ChatTemplate
from genai_pipeline.preprocess.items import check_count, publish
from genai_pipeline.preprocess.placeholders import Placeholders
from genai_pipeline.preprocess.slots import Placed
from genai_pipeline.preprocess.template_source import find_template
from genai_pipeline.preprocess.text_inputs import ON_DEMAND, TextInput, has_decode_loop, loop_texts
from genai_pipeline.preprocess.text_reader import Ask, Beside, TextReader
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Problems, one_of

_NOT_PLACED: Final = Placed(())


class PackageTexts:
    """Reads the text inputs of a package; threads may share it."""

    def __init__(self, package: PackageSpec, tokenizers: Mapping[str, Tokenizer], read: frozenset[str]) -> None:
        self._package = package
        self._tokenizers = tokenizers
        owner, named = placeholder_texts(package)
        self.templates: Mapping[str, ChatTemplate | None] = {
            name: ChatTemplate.load(package.root, spec, tokenizers[name], placeholder_tokens(package, name))
            for name, spec in package.tokenizers.items()
        }
        self._readers: dict[str, TextReader] = {}
        for name, spec in package.inputs.items():
            if spec.modality != "text":
                continue
            entry = spec.tokenizer or DEFAULT_TOKENIZER
            tokenizer, template = tokenizers.get(entry), self.templates.get(entry)
            text = TextInput(
                spec,
                tokenizer,
                package.tokenizers.get(entry),
                frozenset(field for field in ON_DEMAND if f"{name}.{field}" in read),
                complete=_is_complete(package, name, entry, has_template=template is not None),
            )
            inputs = [package.inputs[each] for each in named] if name == owner else []
            self._readers[name] = TextReader(package, text, template, Placeholders(inputs, tokenizer))

    @property
    def names(self) -> tuple[str, ...]:
        """The text inputs."""
        return tuple(self._readers)

    @property
    def main(self) -> InputSpec:
        """The text input that a bare prompt means. Raises RequestError when that is not clear."""
        found = main_text(self._package)
        if found is not None:
            return found
        what = f"text inputs {one_of(self._readers)}" if self._readers else "no text input"
        raise RequestError(
            f"this package has {what}, so a bare prompt is not clear", param="prompt", hint="use run() with names"
        )

    @property
    def main_tokenizer(self) -> Tokenizer:
        """The tokenizer of the main input. Raises RequestError when there is none."""
        tokenizer = self._tokenizers.get(self.main.tokenizer or DEFAULT_TOKENIZER)
        if tokenizer is None:
            raise RequestError("this package has no tokenizer", param="tokens")
        return tokenizer

    def placeholders_in(self, name: str) -> Sequence[str]:
        """The inputs whose items have places in a text."""
        return self._readers[name].placeholders.inputs

    def is_list(self, name: str) -> bool:
        """Whether an input takes a list."""
        return is_list(self._package.inputs[name])

    def read(self, name: str, ask: Ask | None, beside: Beside, answer: AnswerOptions) -> tuple[dict[str, Any], Placed]:
        """The values of a text input (None: it is absent), and its places for images and sounds."""
        spec, reader = self._package.inputs[name], self._readers[name]
        many = self.is_list(name)
        if ask is None:
            return publish(spec, [], reader.input.published, many=many), _NOT_PLACED
        if not many:
            item, placed = reader.read(ask, beside, answer, name)
            return publish(spec, [item], reader.input.published, many=False), placed
        asks = _each(spec, ask)
        check_count(spec, len(asks), many=True)
        items = [
            reader.read(one, beside, answer, name if isinstance(ask.text, str) else f"{name}[{index}]")[0]
            for index, one in enumerate(asks)
        ]
        return publish(spec, items, reader.input.published, many=True), _NOT_PLACED


def main_text(package: PackageSpec) -> InputSpec | None:
    """The text input that a bare prompt means: the only one, or the one named ``prompt``."""
    texts = [spec for spec in package.inputs.values() if spec.modality == "text"]
    if len(texts) == 1:
        return texts[0]
    return next((spec for spec in texts if spec.name == "prompt"), None)


def placeholder_texts(package: PackageSpec) -> tuple[str | None, tuple[str, ...]]:
    """The text input whose prompts have places for items, and the inputs whose items these are."""
    named = tuple(name for name, spec in package.inputs.items() if spec.placeholder is not None)
    main = main_text(package)
    return (main.name, named) if main is not None and named else (None, ())


def is_templated(package: PackageSpec, name: str) -> bool:
    """Whether a chat template is written around the prompts of a text input, and tells of its items."""
    entry = package.inputs[name].tokenizer or DEFAULT_TOKENIZER
    declared = package.tokenizers.get(entry)
    found = declared is not None and find_template(package.root, declared, Problems()) is not None
    return found and not _is_complete(package, name, entry, has_template=True)


def placeholder_tokens(package: PackageSpec, tokenizer: str) -> dict[str, str]:
    """The placeholder's token for each modality, in prompts that a tokenizer reads."""
    owner, named = placeholder_texts(package)
    if owner is None or (package.inputs[owner].tokenizer or DEFAULT_TOKENIZER) != tokenizer:
        return {}
    placeholders = ((package.inputs[name].modality, package.inputs[name].placeholder) for name in named)
    return {modality: placeholder.token for modality, placeholder in placeholders if placeholder is not None}


def _is_complete(package: PackageSpec, name: str, entry: str, *, has_template: bool) -> bool:
    """Whether the post-processor's tokens belong to the texts of an input, which no template is written around."""
    talks = has_template and has_decode_loop(package)
    return name not in loop_texts(package) and not talks and _may_complete(package, entry)


def _may_complete(package: PackageSpec, tokenizer: str) -> bool:
    """Whether nothing says that texts are to be left alone."""
    declared = package.tokenizers.get(tokenizer)
    return declared is not None and declared.add_bos is not False


def _each(spec: InputSpec, ask: Ask) -> list[Ask]:
    """The texts of a list: a list of them, or one text alone."""
    if ask.text is None or isinstance(ask.text, str):
        return [ask]
    if not isinstance(ask.text, list | tuple):
        message = f"{spec.name} must be a string or a list of strings, not {type(ask.text).__name__}"
        raise RequestError(message, param=spec.name)
    return [Ask(text, system=ask.system, raw=ask.raw) for text in ask.text]

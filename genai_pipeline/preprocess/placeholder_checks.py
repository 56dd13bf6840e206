"""Checks of placeholders: the token, what it expands to, the prompt it stands in, and the template that writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from genai_pipeline.errors import RequestError
from genai_pipeline.graph.uses import below
from genai_pipeline.graph.values import is_list
from genai_pipeline.metadata.build import DEFAULT_TOKENIZER
from genai_pipeline.metadata.expressions import names
from genai_pipeline.metadata.model import InputSpec, PackageSpec, PlaceholderSpec
from genai_pipeline.preprocess.chat import ChatTemplate, read_chat_template
from genai_pipeline.preprocess.media_parts import stub
from genai_pipeline.preprocess.package_texts import main_text, placeholder_tokens
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Problems, one_of

Published = Mapping[str, frozenset[str] | None]  # by input; None: not known
_TEXT_NAMES: Final = frozenset({"parameters", "features", "range", "namespace", "dict", "cycler", "joiner"})


def check_placeholders(
    spec: PackageSpec, tokenizers: Mapping[str, Tokenizer], published: Published, problems: Problems
) -> None:
    """Report placeholders that cannot be expanded, told apart, or written."""
    owners = [owner for owner in spec.inputs.values() if owner.placeholder is not None]
    if not owners or (text := _prompt_input(spec, owners[0], problems)) is None:
        return
    entry = text.tokenizer or DEFAULT_TOKENIZER
    tokenizer = tokenizers.get(entry)
    if tokenizer is None:
        if entry not in spec.tokenizers:
            message = f"'{owners[0].name}' has places in '{text.name}', which no tokenizer reads"
            problems.error(owners[0].at, "placeholder.tokenizer", message, "declare tokenizer:")
        return
    seen: dict[str, str] = {}
    sound = True
    for owner in owners:
        before = len(problems)
        _check_token(owner, tokenizer, seen, problems)
        _check_share(owner, spec, published.get(owner.name), problems)
        sound = sound and len(problems) == before
    if sound:
        _check_template(spec, owners, tokenizer, entry, problems)


def _prompt_input(spec: PackageSpec, first: InputSpec, problems: Problems) -> InputSpec | None:
    """The one text input that has places for items."""
    text = main_text(spec)
    if text is None:
        texts = [name for name, owner in spec.inputs.items() if owner.modality == "text"]
        what = f"the text inputs {one_of(texts)}" if texts else "no text input"
        message = f"'{first.name}' has places in the prompt, and the package has {what}"
        problems.error(first.at, "placeholder.prompt", message, "name the text input with the places 'prompt'")
        return None
    if is_list(text):
        message = f"'{first.name}' has places in '{text.name}', which is a list of texts"
        problems.error(first.at, "placeholder.prompt", message, "give one text: list: false")
        return None
    return text


def _check_token(owner: InputSpec, tokenizer: Tokenizer, seen: dict[str, str], problems: Problems) -> None:
    placeholder = _placeholder(owner)
    at, token = below(placeholder.at, "token"), placeholder.token
    found = tokenizer.vocabulary.resolve("placeholder.token", token, at, problems)
    if token in seen:
        message = f"'{owner.name}' and '{seen[token]}' have the same placeholder token {token!r}"
        problems.error(at, "placeholder.token", message, "each input needs a token of its own")
    seen.setdefault(token, owner.name)
    if found is not None and found in {*tokenizer.end_ids, tokenizer.bos_id}:
        message = f"the placeholder token {token!r} of '{owner.name}' begins or ends texts"
        problems.error(at, "placeholder.token", message, "name a token of its own")


def _check_share(owner: InputSpec, spec: PackageSpec, published: frozenset[str] | None, problems: Problems) -> None:
    """How an item is expanded: by its own fields and the request's parameters, known before anything runs."""
    placeholder = _placeholder(owner)
    if placeholder.expand is not None:
        _check_expand(owner, placeholder.expand, problems)
    for name in sorted(names(placeholder.count.expr)) if placeholder.count is not None else ():
        if name.partition(".")[0] not in (owner.name, "parameters"):
            message = f"the number of slots of '{owner.name}' reads '{name}'"
            hint = f"it may read what its own program gives ({owner.name}.tokens), and parameters"
            problems.error(below(placeholder.at, "count"), "placeholder.count", message, hint)


def _check_expand(owner: InputSpec, source: str, problems: Problems) -> None:
    from genai_pipeline.preprocess.chat_template import ChatProgram, TemplateSyntaxError

    placeholder = _placeholder(owner)
    at = below(placeholder.at, "expand")
    try:
        read = ChatProgram(source).variables
    except TemplateSyntaxError as error:
        message = f"the text of expand: {error.message} (line {error.line} of it)"
        problems.error(at, "placeholder.expand", message, "mend the Jinja text")
        return
    unknown = sorted(read - _TEXT_NAMES - {owner.name})
    if unknown:
        hint = f"it has '{owner.name}' with the fields of the item, 'parameters' and features(n)"
        problems.error(at, "placeholder.expand", f"the text of expand reads {one_of(unknown)}", hint)
    if "features" not in read:
        message = "the text of expand has no features(n), so the item would have no slots"
        problems.error(at, "placeholder.expand", message, "{{ features(64) }} stands for 64 slots")
    if placeholder.token in source:
        message = f"the text of expand writes {placeholder.token!r} itself"
        problems.error(at, "placeholder.expand", message, "features(n) stands for n of them")


def _check_template(
    spec: PackageSpec, owners: list[InputSpec], tokenizer: Tokenizer, entry: str, problems: Problems
) -> None:
    """A template that takes parts must write one placeholder for each."""
    tokens = placeholder_tokens(spec, entry)
    template = read_chat_template(spec.root, spec.tokenizers[entry], tokenizer, Problems(), tokens)
    if template is None:
        return
    for owner in owners:
        written = list(_written(template, owner))
        token = _placeholder(owner).token
        if written and written.count(token) != 1:
            message = f"the chat template writes {token!r} {written.count(token)} times for one {owner.modality}"
            hint = f'it must write it once for a part of type "{owner.modality}"'
            problems.error(below(_placeholder(owner).at, "token"), "placeholder.template", message, hint)


def _written(template: ChatTemplate, owner: InputSpec) -> Iterator[str]:
    """The control tokens that the template writes for a turn with one item; none when it refuses such a turn."""
    turn = {"role": "user", "content": [stub(owner.modality), {"type": "text", "text": "x"}]}
    try:
        pieces = template.render_chat([turn]).pieces
    except RequestError:
        return
    yield from (piece.text for piece in pieces if piece.control)
    yield ""  # it was rendered


def _placeholder(owner: InputSpec) -> PlaceholderSpec:
    assert owner.placeholder is not None
    return owner.placeholder

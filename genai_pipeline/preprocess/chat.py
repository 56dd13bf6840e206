"""Conversations to prompts: renders a package's chat template and encodes the outcome.

Only control tokens written by the template become control tokens. The template's text carries the origin of every
character (``origin_text``), and a control token counts when the template wrote all of it: its own text, the
``bos_token`` and its like, roles (which are checked against a closed list), numbers and the date. Text of messages,
tools, documents and variables never counts, nor does a token put together from template and request text. The rendered
text itself is exactly what the template says, whatever is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.errors import PackageInvalidError, TemplateError
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.preprocess.control_pieces import cut_written
from genai_pipeline.preprocess.messages import ROLES, ContentForm, MessageRules, plain_data, read_messages, read_objects
from genai_pipeline.preprocess.origin_text import REQUEST, TEMPLATE, OriginText, characters, joined_with, mark
from genai_pipeline.preprocess.plain_encoder import Piece
from genai_pipeline.preprocess.template_source import TemplateSource, find_template
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Problems

if TYPE_CHECKING:
    from genai_pipeline.preprocess.chat_template import ChatProgram

Objects = Sequence[Mapping[str, Any]]
NO_PLACEHOLDERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A rendered conversation: its text, and the same cut at the control tokens that the template wrote."""

    text: str
    pieces: tuple[Piece, ...]


class ChatTemplate:
    """A package's chat template with its tokenizer; threads may share it."""

    def __init__(
        self,
        source: TemplateSource,
        tokenizer: Tokenizer,
        *,
        clock: Callable[[], datetime] = datetime.now,
        placeholders: Mapping[str, str] = NO_PLACEHOLDERS,
    ) -> None:
        """Compile the template; raises ``chat_template.TemplateSyntaxError``.

        ``placeholders``: modality -> text of the token that stands in the prompt for an item of it.
        """
        from genai_pipeline.preprocess.chat_template import ChatProgram

        self.source = source
        self.texts = tuple(text for text in (source.text, source.tool_use) if text is not None)
        self._tokenizer = tokenizer
        programs = [ChatProgram(text, clock, name=source.title) for text in self.texts]
        self._placeholders = placeholders
        modalities = frozenset(("text", *placeholders))
        # without and with tools
        self._programs = [(program, _rules(program, modalities)) for program in (programs[0], programs[-1])]
        self._generation_prompt: str | None = None
        self._token_texts = mark(tokenizer.template_texts(), TEMPLATE)

    @staticmethod
    def load(
        root: Path, spec: TokenizerSpec, tokenizer: Tokenizer, placeholders: Mapping[str, str] = NO_PLACEHOLDERS
    ) -> ChatTemplate | None:
        """The template of a declared tokenizer, None when it has none; raises PackageInvalidError."""
        problems = Problems()
        loaded = read_chat_template(root, spec, tokenizer, problems, placeholders)
        if problems.failed:
            found = problems.sorted()
            raise PackageInvalidError(f"the chat template cannot be used: {found[0].message}", found)
        return loaded

    def render_chat(
        self,
        messages: Objects,
        tools: Objects | None = None,
        documents: Objects | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> RenderedPrompt:
        """Render a conversation; ``variables`` reach the template by name (``enable_thinking`` and the like).

        Raises RequestError for a malformed conversation, TemplateError when the template refuses it.
        """
        tools = read_objects("tools", tools)
        documents = read_objects("documents", documents)
        program, rules = self._programs[tools is not None]
        conversation = read_messages(messages, rules)
        extra = plain_data("chat_template_kwargs", variables)
        request = [conversation, tools, documents, extra]
        text = program.render(
            {
                **self._token_texts,
                **mark(extra, REQUEST),
                "messages": [self._labelled(message, rules) for message in conversation],
                "tools": mark(tools, REQUEST),
                "documents": mark(documents, REQUEST),
                "add_generation_prompt": add_generation_prompt,
            }
        )
        pieces = cut_written(self._tokenizer, text, frozenset(characters(request)))
        return RenderedPrompt(str.__str__(text), pieces)

    def variables(self, *, tools: bool) -> frozenset[str]:
        """What the template looks for among what it is given, of the one that is used with or without tools."""
        return self._programs[tools][0].variables

    def generation_prompt(self) -> str:
        """What the template writes after a turn of the user, for the answer to go on from; empty if it refuses one."""
        if self._generation_prompt is None:
            turn = [{"role": "user", "content": "x"}]
            try:
                with_it, without = (self.render_chat(turn, add_generation_prompt=add).text for add in (True, False))
            except TemplateError:
                with_it = without = ""
            self._generation_prompt = with_it.removeprefix(without)
        return self._generation_prompt

    def encode_chat(
        self,
        messages: Objects,
        tools: Objects | None = None,
        documents: Objects | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> tuple[int, ...]:
        """Token ids of a conversation, with exactly one BOS in front where the tokenizer wants one."""
        rendered = self.render_chat(messages, tools, documents, add_generation_prompt, **variables)
        return self.encode(rendered.pieces)

    def encode(self, pieces: Iterable[Piece]) -> tuple[int, ...]:
        """Token ids of the pieces of a rendered conversation, see ``encode_chat``."""
        return self._tokenizer.with_bos(self._tokenizer.encode_pieces(pieces))

    def _labelled(self, message: Mapping[str, Any], rules: MessageRules) -> dict[str, Any]:
        """A message as request text, but for its role, which is one of a closed list, and for placeholders."""
        labelled = {**mark(message, REQUEST), "role": OriginText.of(message["role"], TEMPLATE)}
        content = message.get("content")
        if rules.content == "string" and isinstance(content, list):
            labelled["content"] = joined_with(OriginText.of("\n", REQUEST), map(self._part_text, content))
        return labelled

    def _part_text(self, part: Mapping[str, Any]) -> OriginText:
        """A part where the template takes texts only: what stands for an image or a sound is ours to write."""
        if part["type"] == "text":
            return OriginText.of(part["text"], REQUEST)
        return OriginText.of(self._placeholders[part["type"]], TEMPLATE)


def read_chat_template(
    root: Path,
    spec: TokenizerSpec,
    tokenizer: Tokenizer,
    problems: Problems,
    placeholders: Mapping[str, str] = NO_PLACEHOLDERS,
) -> ChatTemplate | None:
    """The template of a declared tokenizer, compiled; None when there is none or it does not parse."""
    from genai_pipeline.preprocess.chat_template import TemplateSyntaxError

    source = find_template(root, spec, problems)
    if source is None:
        return None
    try:
        return ChatTemplate(source, tokenizer, placeholders=placeholders)
    except TemplateSyntaxError as error:
        place = source.place(error.line)
        where = "" if source.own_file else f" (line {error.line} of the template)"
        problems.error(place, "template.syntax", f"chat template: {error.message}{where}", "mend the Jinja template")
        return None


_PLAIN: Final = "send a raw prompt (--raw, raw=True, /v1/completions), or declare tokenizer.chat_template"
_CONVERSATION: Final = "declare tokenizer.chat_template; without one, a package takes single raw prompts"


def require_template(template: ChatTemplate | None, *, conversation: bool) -> ChatTemplate:
    """The template, or the TemplateError that says what a package without one can still do.

    ``conversation``: messages are to be rendered, which cannot be sent raw as one prompt can.
    """
    if template is None:
        raise TemplateError(
            "this package has no chat template, so it takes no messages",
            hint=_CONVERSATION if conversation else _PLAIN,
        )
    return template


def _rules(program: ChatProgram, modalities: frozenset[str]) -> MessageRules:
    content: ContentForm = "string"
    if program.loops_over_content():
        content = "either" if program.tests_content_type() else "parts"
    return MessageRules(ROLES | program.roles(), modalities, content)

"""What a package's answers look like, and for each request the parser, budget and grammar that follow from it."""

from __future__ import annotations

import secrets
import string
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.parsing.answer import AnswerParser
from genai_pipeline.parsing.budget import ReasoningBudget
from genai_pipeline.parsing.call_format import CallFormat
from genai_pipeline.parsing.call_stream import CallStream
from genai_pipeline.parsing.reasoning import ReasoningSplitter
from genai_pipeline.parsing.registry import FORMATS
from genai_pipeline.preprocess.answer_options import AnswerOptions
from genai_pipeline.preprocess.chat import ChatTemplate
from genai_pipeline.preprocess.reasoning_tags import ReasoningTags, find_reasoning
from genai_pipeline.preprocess.tokenizer import Tokenizer

_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class CallRules:
    """Grammar of a request's answer: Lark text, and the name of the rule in it that the answer follows.

    ``calls``: a call must come; ``text_or_calls``: text may stand beside calls.
    """

    lark: str
    start: str

    @property
    def grammar(self) -> str:
        """The same as a whole grammar."""
        return f"start: {self.start}\n{self.lark}"


class AnswerReader:
    """Of one loop of a package; threads may share it."""

    def __init__(
        self,
        format: CallFormat | None,
        reasoning: ReasoningTags | None,
        tokenizer: Tokenizer | None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        """``new_id`` makes ids of tool calls, random ones if not given."""
        self.reasoning = reasoning
        self._format = format
        self._tokenizer = tokenizer
        short = format is not None and format.short_ids
        self._new_id = new_id or (_short_id if short else _long_id)

    @staticmethod
    def of(package: PackageSpec, tokenizer: Tokenizer | None, template: ChatTemplate | None) -> AnswerReader:
        """The reader for answers of a loop with this tokenizer and chat template."""
        declared = package.tools
        format = None if declared is None else FORMATS[declared["format"]]
        reasoning = find_reasoning(package.reasoning, () if template is None else template.texts)
        return AnswerReader(format, reasoning, tokenizer)

    def check(self, answer: AnswerOptions) -> None:
        """Refuse what this package's answers do not have. Raises OptionError."""
        if answer.tools is not None and self._format is None:
            message = "this package declares no format of tool calls, so it takes no tools"
            hint = f"its metadata can declare one: tools: {{format: {next(iter(FORMATS))}}}"
            raise OptionError(message, param="tools", hint=hint)
        if answer.budget is not None and self._close_tokens() == ():
            message = "this package's answers have no reasoning, so it takes no reasoning_budget"
            raise OptionError(message, param="reasoning_budget", hint="its metadata can declare reasoning")

    def parser(self, answer: AnswerOptions, prompt: str) -> AnswerParser | None:
        """The parser of one answer to a prompt (its text, control tokens included); None where all of it is text."""
        splitter = calls = None
        if self.reasoning is not None:
            splitter = ReasoningSplitter(self.reasoning, opened=self.reasoning.opened_by(prompt))
        if answer.tools is not None and self._format is not None:
            calls = CallStream(self._format, answer.tools, self._new_id)
        return None if splitter is None and calls is None else AnswerParser(splitter, calls)

    def budget(self, answer: AnswerOptions, parser: AnswerParser | None) -> ReasoningBudget | None:
        """The bound on one answer's reasoning, for a parser that has read nothing yet; None where there is none."""
        if answer.budget is None or parser is None:
            return None
        return ReasoningBudget(answer.budget, self._close_tokens(), inside=parser.in_reasoning)

    def visible_tokens(self, answer: AnswerOptions) -> frozenset[int]:
        """Control tokens whose text the parser must see, so that the detokeniser may not skip them."""
        if self._tokenizer is None:
            return frozenset()
        texts = list(self._format.tags) if answer.tools is not None and self._format is not None else []
        if self.reasoning is not None:
            texts += (self.reasoning.open, self.reasoning.close)
        return self._tokenizer.control_ids(texts) - self._tokenizer.end_ids

    def call_rules(self, answer: AnswerOptions) -> CallRules | None:
        """The grammar of calls that binds an answer, behind its reasoning; None where none does. Raises OptionError."""
        tools = answer.tools
        if tools is None or self._format is None or not tools.constrained:
            return None
        special = {} if self._tokenizer is None else self._tokenizer.control_tokens
        return CallRules(self._format.rules(tools, special), "calls" if tools.mode == "required" else "text_or_calls")

    def call_grammar(self, answer: AnswerOptions) -> str | None:
        """Lark text with a rule ``calls``, whether or not anything binds the calls; None where none may come."""
        if answer.tools is None or self._format is None:
            return None
        special = {} if self._tokenizer is None else self._tokenizer.control_tokens
        return self._format.rules(answer.tools, special)

    def _close_tokens(self) -> tuple[int, ...]:
        if self.reasoning is None or self._tokenizer is None:
            return ()
        return self._tokenizer.encode_text(self.reasoning.close, allow_special=True)


def _long_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def _short_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))

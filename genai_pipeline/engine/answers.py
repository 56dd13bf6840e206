"""What follows the answers of one loop: stop strings, reasoning and calls in the text, constraints on the tokens."""

from __future__ import annotations

from typing import NamedTuple

from genai_pipeline.constraints.rules import combined_spec
from genai_pipeline.constraints.spec import ConstraintSpec, Preamble
from genai_pipeline.constraints.state import Constraint, ConstraintState
from genai_pipeline.engine.answer_form import AnswerForm
from genai_pipeline.engine.rules import LoopRules
from genai_pipeline.engine.text_output import TextOutput
from genai_pipeline.errors import OptionError
from genai_pipeline.parsing.budget import ReasoningBudget
from genai_pipeline.parsing.reader import AnswerReader
from genai_pipeline.problems import one_of
from genai_pipeline.sampling.params import GenerationOptions


class AnswerParts(NamedTuple):
    """What follows one choice from its first token to its last."""

    text: TextOutput
    constraint: ConstraintState | None
    budget: ReasoningBudget | None


class Answers:
    """Of one loop, named ``loop`` in errors."""

    def __init__(self, loop: str, rules: LoopRules) -> None:
        self._loop = loop
        self._rules = rules

    def check(self, form: AnswerForm) -> None:
        """Refuse a form that this loop's answers cannot have. Raises OptionError."""
        if form.plain:
            return
        if self._rules.reader is None or self._rules.compiler is None:
            asked = "tools" if form.constraint is None else form.constraint.param
            raise OptionError(f"'{self._loop}' gives no text, whose form could be asked for", param=asked)
        self._rules.reader.check(form.options)
        if (
            form.constraint is not None
            and self._rules.modes is not None
            and form.constraint.mode not in self._rules.modes
        ):
            message = f"this package's model is not made for answers bound by {form.constraint.mode}"
            hint = f"its metadata names: {one_of(self._rules.modes)}"
            raise OptionError(message, param=form.constraint.param, hint=hint)
        tools = form.options.tools
        if form.constraint is not None and tools is not None and tools.mode == "required":
            message = f"tool_choice asks for a call, so there is no answer that {form.constraint.param} could bind"
            raise OptionError(message, param=form.constraint.param, hint="leave one of the two out")

    def compile(self, form: AnswerForm, prompt: str) -> Constraint | None:
        """What binds the tokens of answers to a prompt (its text, control tokens included); None where nothing does.

        Raises ConstraintError or ExtraMissingError.
        """
        reader, compiler = self._rules.reader, self._rules.compiler
        if form.plain or reader is None or compiler is None:
            return None
        spec = _spec(form, reader)
        return None if spec is None else compiler.compile(spec.after(_preamble(reader, prompt)))

    def parts(
        self, form: AnswerForm, options: GenerationOptions, constraint: Constraint | None, prompt: str
    ) -> AnswerParts:
        """What follows a new choice."""
        rules = self._rules
        if rules.decoder is None:
            return AnswerParts(TextOutput(None, ()), None, None)
        if rules.reader is None:
            return AnswerParts(TextOutput(rules.decoder(frozenset()), options.stop), None, None)
        parser = rules.reader.parser(form.options, prompt)
        return AnswerParts(
            TextOutput(rules.decoder(rules.reader.visible_tokens(form.options)), options.stop, parser),
            None if constraint is None else constraint.start(rules.end_tokens(options)),
            rules.reader.budget(form.options, parser),
        )


def _spec(form: AnswerForm, reader: AnswerReader) -> ConstraintSpec | None:
    """The constraint on an answer behind its reasoning: the one asked for, the grammar of calls, or either."""
    if form.constraint is None:
        rules = reader.call_rules(form.options)
        return None if rules is None else combined_spec(rules.grammar, "tools")
    calls = reader.call_grammar(form.options)
    if calls is None:
        return form.constraint
    return combined_spec(f"start: calls | answer\n{calls}", "tools", form.constraint)


def _preamble(reader: AnswerReader, prompt: str) -> Preamble | None:
    tags = reader.reasoning
    return None if tags is None else Preamble(tags.open, tags.close, mandatory=tags.opened_by(prompt))

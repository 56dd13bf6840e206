"""Request options about the form of an answer: tools and reasoning, and what they tell the chat template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from genai_pipeline.errors import OptionError
from genai_pipeline.option_values import integer, text
from genai_pipeline.preprocess.messages import plain_data
from genai_pipeline.preprocess.tools import ToolUse, read_tool_use
from genai_pipeline.problems import nearest, one_of, shown

if TYPE_CHECKING:
    from genai_pipeline.preprocess.chat import ChatTemplate

Effort = Literal["none", "low", "medium", "high"]

_EFFORTS: Final = ("none", "low", "medium", "high")
_EFFORT: Final = "reasoning_effort"
_SWITCHES: Final = ("enable_thinking", "thinking")  # variables by which templates switch reasoning off
_OWN: Final = frozenset(("messages", "tools", "documents", "add_generation_prompt", _EFFORT))  # have their own options


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What a request wants of its answer's form; ``tools`` None: nothing is parsed as a call."""

    tools: ToolUse | None = None
    effort: Effort | None = None
    budget: int | None = None  # most tokens of reasoning
    variables: Mapping[str, Any] = field(default_factory=dict)  # further ones of the chat template

    @staticmethod
    def of(
        *,
        tools: Any = None,
        tool_choice: Any = None,
        parallel_tool_calls: Any = None,
        reasoning_effort: Any = None,
        reasoning_budget: Any = None,
        chat_template_kwargs: Any = None,
    ) -> AnswerOptions:
        """The options checked, as a request gives them; None means not given. Raises OptionError."""
        return AnswerOptions(
            tools=read_tool_use(tools, tool_choice, parallel_tool_calls),
            effort=_effort(reasoning_effort),
            budget=None if reasoning_budget is None else integer("reasoning_budget", reasoning_budget, 0),
            variables=_variables(chat_template_kwargs),
        )

    def for_template(self, template: ChatTemplate) -> dict[str, Any]:
        """Keyword arguments of ``ChatTemplate.render_chat``. Raises OptionError for what the template ignores."""
        known = template.variables(tools=self.tools is not None)
        if self.tools is not None and "tools" not in known:
            message = "the chat template of this package does not show tools to the model"
            raise OptionError(message, param="tools", hint="leave tools out, or set tool_choice to 'none'")
        for name in self.variables:
            if name not in known:
                own = sorted(known - _OWN)
                hint = nearest(name, own) or (f"it has: {one_of(own, 20)}" if own else "it has none of its own")
                message = f"the chat template has no variable {shown(name)}"
                raise OptionError(message, param=f"chat_template_kwargs.{name}", hint=hint)
        tools = {} if self.tools is None else {"tools": self.tools.shown()}
        return {**self.variables, **_effort_variable(self.effort, known), **tools}

    def check_untemplated(self) -> None:
        """Refuse what only a chat template could tell the model. Raises OptionError."""
        given = {
            "tools": self.tools is not None,
            _EFFORT: self.effort is not None,
            "chat_template_kwargs": bool(self.variables),
        }
        for name, is_given in given.items():
            if is_given:
                message = f"{name} goes with messages or a prompt that the chat template renders"
                raise OptionError(message, param=name, hint="not with a raw prompt, suffix or tokens")


ANSWER_OPTIONS: Final = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    _EFFORT,
    "reasoning_budget",
    "chat_template_kwargs",
)


def _effort(given: Any) -> Effort | None:
    if given is None:
        return None
    for effort in _EFFORTS:
        if text(_EFFORT, given) == effort:
            return effort
    raise OptionError(f"{_EFFORT} must be {one_of(_EFFORTS)}, not {shown(given)}", param=_EFFORT)


def _effort_variable(effort: Effort | None, known: frozenset[str]) -> dict[str, Any]:
    """The template variable that states an effort. Raises OptionError where there is none."""
    if effort is None:
        return {}
    switch = next((name for name in _SWITCHES if name in known), None)
    if effort == "none" and switch is not None:
        return {switch: False}
    if _EFFORT in known:
        return {_EFFORT: effort}
    hint = f"it takes 'none', by its variable {switch}" if switch else "leave it out"
    message = f"the chat template of this package has no way to state a {_EFFORT} of {effort!r}"
    raise OptionError(message, param=_EFFORT, hint=hint)


def _variables(given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise OptionError(f"chat_template_kwargs must be an object, not {shown(given)}", param="chat_template_kwargs")
    for name in given:
        if name in _OWN:
            message = f"chat_template_kwargs cannot set {shown(name)}"
            hint = f"it is an option of its own: {name}" if name in ("messages", "tools", _EFFORT) else ""
            raise OptionError(message, param=f"chat_template_kwargs.{name}", hint=hint)
    variables: dict[str, Any] = plain_data("chat_template_kwargs", given)
    return variables

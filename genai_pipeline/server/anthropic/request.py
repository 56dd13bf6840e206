"""A Messages request read: the conversation and what to ask the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.server.anthropic.blocks import PATH, read_messages
from genai_pipeline.server.api_errors import bad_request
from genai_pipeline.server.bodies import SHOWN, Fields
from genai_pipeline.server.conversation import Conversation
from genai_pipeline.server.openai.fields import SHARED, refuse_media, refuse_others
from genai_pipeline.types import PROMPT_OPTIONS

# The interface's own names of options, by those of the pipeline.
NAMES: Final = {
    "max_new_tokens": "max_tokens",
    "stop": "stop_sequences",
    "reasoning_budget": "thinking.budget_tokens",
    "reasoning_effort": "output_config.effort",
    "response_format.json_schema.schema": "output_config.format.schema",
    "response_format.json_schema": "output_config.format",
    "response_format": "output_config.format",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "function.name": "name",
    "function.parameters": "input_schema",
    "function.strict": "strict",
}

_UNSUPPORTED: Final = ("container", "context_management", "mcp_servers", "diagnostics")
# Fields that change no answer, with what they may say: who asks, where, how a cache may be kept.
_NO_EFFECT: Final = ("cache_control", "inference_geo", "user_profile_id", "workspace_id")
# Fields of the other interfaces, which would change the answer, and what they are called here.
_ELSEWHERE: Final = {
    "stop": "stop_sequences",
    "n": "one request for each answer",
    "response_format": "output_config.format",
    "max_completion_tokens": "max_tokens",
    "reasoning_budget": "thinking.budget_tokens",
    "reasoning_effort": "output_config.effort",
}
_INSTEAD: Final = {
    "prompt": "messages, or /v1/completions",
    "max_new_tokens": "max_tokens",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}
_PROMPT_EXTENSIONS: Final = ("parameters", "chat_template_kwargs")  # count for the prompt, too
_EXTENSIONS: Final = (*(name for name in SHARED if name not in {*_ELSEWHERE, *_PROMPT_EXTENSIONS}), "priority")
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


@dataclass(frozen=True, slots=True)
class MessageRequest:
    """One request; ``options`` are arguments of ``Pipeline.aopen`` besides the conversation."""

    model: str | None
    conversation: Conversation
    options: Mapping[str, Any]
    thinks: bool | None  # whether the model should reason; None: as it does by itself
    stream: bool


def read_request(body: Mapping[str, Any]) -> MessageRequest:
    """The request of a body. Raises ApiError 400 naming the field at fault."""
    fields = Fields(body)
    limit = fields.must("max_tokens", fields.integer("max_tokens", low=1))
    stops = _stops(fields)
    counted = _read(fields)
    given = {name: fields.any(name) for name in _EXTENSIONS}
    options = {
        **{name: value for name, value in given.items() if value is not None},
        **counted.options,
        "max_new_tokens": limit,
        **({"stop": stops} if stops else {}),
    }
    metadata = Fields(fields.mapping("metadata") or {}, "metadata.")
    metadata.text("user_id")  # says who asks
    fields.choice("service_tier", ("auto", "standard_only"))  # there is one class of service
    request = MessageRequest(
        counted.model, counted.conversation, options, counted.thinks, fields.boolean("stream") or False
    )
    refuse_others(fields, _INSTEAD)
    fields.skip_rest(PATH)
    return request


def read_count(body: Mapping[str, Any]) -> MessageRequest:
    """What of a body makes its prompt, for counting its tokens. Raises ApiError 400."""
    fields = Fields(body)
    request = _read(fields)
    refuse_others(fields, _INSTEAD, PROMPT_OPTIONS)
    fields.skip_rest(f"{PATH}/count_tokens")
    return request


def _read(fields: Fields) -> MessageRequest:
    """What makes the prompt: the conversation, tools, and how the answer should be."""
    fields.refuse(*_UNSUPPORTED)
    refuse_media(fields)
    fields.refuse_for(_ELSEWHERE)
    fields.ignore(*_NO_EFFECT)
    if fields.choice("speed", ("standard", "fast")) == "fast":
        raise bad_request("speed: 'fast' is not supported", "speed", code="unsupported_field")
    thinks, thinking = _thinking(fields)
    given = {name: value for name in _PROMPT_EXTENSIONS if (value := fields.any(name)) is not None}
    options = {**_tools(fields), **thinking, **_output(fields), **given}
    conversation = Conversation()
    read_messages(fields, conversation)
    return MessageRequest(fields.text("model"), conversation, options, thinks, stream=False)


def _stops(fields: Fields) -> list[str]:
    stops = fields.list("stop_sequences") or []
    for index, stop in enumerate(stops):
        if not isinstance(stop, str) or not stop:
            param = f"stop_sequences[{index}]"
            raise bad_request(f"{param} must be a string that is not empty", param)
    return stops


def _tools(fields: Fields) -> dict[str, Any]:
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(fields.list("tools") or ())]
    choice = Fields(fields.mapping("tool_choice") or {"type": "auto"}, "tool_choice.")
    kind = choice.must("type", choice.choice("type", (*_CHOICES, "tool")))
    chosen: Any = _CHOICES.get(kind)
    if chosen is None:
        chosen = {"type": "function", "function": {"name": choice.must("name", choice.text("name"))}}
    parallel = not choice.boolean("disable_parallel_tool_use")
    choice.skip_rest(PATH)
    if not tools and chosen == "auto":
        return {}
    return {"tools": tools, "tool_choice": chosen, "parallel_tool_calls": parallel}


def _tool(tool: Any, at: str) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise bad_request(f"{at} must be an object", at)
    fields = Fields(tool, f"{at}.")
    kind = fields.text("type")
    if kind not in (None, "custom"):
        message = f"{at}.type: tools of type '{kind[:SHOWN]}' are not supported; those with an input_schema are"
        raise bad_request(message, f"{at}.type", code="unsupported_tool")
    function = {
        "name": fields.must("name", fields.text("name")),
        "description": fields.text("description"),
        "parameters": fields.must("input_schema", fields.mapping("input_schema")),
        "strict": fields.boolean("strict"),
    }
    fields.refuse("input_examples", "allowed_callers")
    if fields.boolean("defer_loading"):
        fields.refuse("defer_loading")
    fields.ignore("cache_control", "eager_input_streaming")
    fields.skip_rest(PATH)
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _thinking(fields: Fields) -> tuple[bool | None, dict[str, Any]]:
    """Whether the model should reason, and the options that say how much."""
    given = fields.mapping("thinking")
    if given is None:
        return None, {}
    thinking = Fields(given, "thinking.")
    kind = thinking.must("type", thinking.choice("type", ("enabled", "disabled", "adaptive")))
    if thinking.choice("display", ("summarized", "omitted")) == "omitted":
        raise bad_request("thinking.display: 'omitted' is not supported", "thinking.display", code="unsupported_field")
    budget = thinking.integer("budget_tokens", low=0)
    thinking.skip_rest(PATH)
    if kind != "enabled":
        if budget is not None:
            raise thinking.wrong("budget_tokens", "goes with type 'enabled'")
        return (False if kind == "disabled" else None), {}
    return True, {"reasoning_budget": thinking.must("budget_tokens", budget)}


def _output(fields: Fields) -> dict[str, Any]:
    config = Fields(fields.mapping("output_config") or {}, "output_config.")
    effort, format = config.text("effort"), config.mapping("format")
    config.skip_rest(PATH)
    options: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    if format is not None:
        form = Fields(format, "output_config.format.")
        form.must("type", form.choice("type", ("json_schema",)))
        schema = {"name": "output", "schema": form.must("schema", form.mapping("schema"))}
        form.skip_rest(PATH)
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    return options

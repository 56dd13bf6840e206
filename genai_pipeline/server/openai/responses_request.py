"""A Responses request read: what to ask the pipeline, and what the response says about the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.bodies import Fields
from genai_pipeline.server.openai.fields import (
    SHARED,
    note_fields,
    read_metadata,
    read_priority,
    refuse_media,
    refuse_others,
    tier_of,
)
from genai_pipeline.server.openai.responses_input import Item, input_items
from genai_pipeline.server.openai.responses_tools import read_tools

PATH: Final = "/v1/responses"

# The interface's own names of options, by those of the pipeline.
NAMES: Final = {
    "max_new_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format.json_schema.schema": "text.format.schema",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "function.name": "name",
    "function.parameters": "parameters",
    "function.strict": "strict",
}

_UNSUPPORTED: Final = (
    "access_programs",
    "background_options",
    "context_management",
    "conversation",
    "image",
    "moderation",
    "prompt",
)
# Fields of the other interfaces, which would change the answer, and what they are called here.
_ELSEWHERE: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "logprobs": "include",
    "n": "one request for each answer",
}
_INSTEAD: Final = {"max_new_tokens": "max_output_tokens", "system": "instructions"}
_EXTENSIONS: Final = (*(name for name in SHARED if name not in _ELSEWHERE), "chat_template_kwargs")
_LOGPROBS: Final = "message.output_text.logprobs"
_INCLUDED: Final = (_LOGPROBS, "reasoning.encrypted_content")  # reasoning always comes whole and legible
_MAX_TOP_LOGPROBS: Final = 20


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """One request; ``options`` are arguments of ``Pipeline.aopen`` besides the conversation."""

    model: str | None
    items: list[Item]
    instructions: str | None
    options: Mapping[str, Any]
    echo: Mapping[str, Any]  # fields of the response that repeat the request
    stream: bool
    store: bool
    previous: str | None


def read_request(body: Mapping[str, Any]) -> ResponseRequest:
    """The request of a body. Raises ApiError 400 naming the field at fault."""
    fields = Fields(body)
    _refuse(fields)
    note_fields(fields)
    fields.integer("max_tool_calls", low=1)  # of tools that run here, and there are none
    priority = read_priority(fields)
    format, text = _text(fields)
    effort, scores = _reasoning(fields), _logprobs(fields)
    options = {**read_tools(fields), **format, **effort, **scores, **_sampling(fields), "priority": priority}
    request = ResponseRequest(
        model=fields.text("model"),
        items=input_items(fields.must("input", fields.any("input"))),
        instructions=fields.text("instructions"),
        options=options,
        echo={
            **_echo(body, scores),
            "text": text,
            "metadata": read_metadata(fields) or {},
            "service_tier": tier_of(priority),
        },
        stream=fields.boolean("stream") or False,
        store=fields.boolean("store") is not False,
        previous=fields.text("previous_response_id"),
    )
    refuse_others(fields, _INSTEAD)
    fields.skip_rest(PATH)
    return request


def _refuse(fields: Fields) -> None:
    """Refuse what is not supported, or asks for something else than happens here anyway."""
    fields.refuse(*_UNSUPPORTED)
    refuse_media(fields)
    fields.refuse_for(_ELSEWHERE)
    if fields.boolean("background"):
        raise _unsupported("background")
    if fields.choice("truncation", ("auto", "disabled")) == "auto":
        raise _unsupported("truncation", "'auto'")
    stream = Fields(fields.mapping("stream_options") or {}, "stream_options.")
    if stream.boolean("include_obfuscation"):
        raise _unsupported("stream_options.include_obfuscation")
    stream.skip_rest(PATH)


def _unsupported(param: str, value: str = "true") -> ApiError:
    return bad_request(f"{param}: {value} is not supported", param, code="unsupported_field")


def _text(fields: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the text must look like, for the pipeline, and as the response repeats it."""
    given = fields.mapping("text") or {}
    text = Fields(given, "text.")
    if text.choice("verbosity", ("low", "medium", "high")) not in (None, "medium"):
        raise _unsupported("text.verbosity", f"'{given['verbosity']}'")
    format = text.mapping("format") or {"type": "text"}
    text.skip_rest(PATH)
    form = Fields(format, "text.format.")
    kind = form.must("type", form.choice("type", ("text", "json_object", "json_schema")))
    if kind == "text":
        return {}, {"format": {"type": "text"}}
    if kind == "json_object":
        return {"response_format": {"type": kind}}, {"format": {"type": kind}}
    schema: dict[str, Any] = {
        "name": form.must("name", form.text("name")),
        "schema": form.must("schema", form.mapping("schema")),
        "strict": form.boolean("strict"),
        "description": form.text("description"),
    }
    schema = {name: value for name, value in schema.items() if value is not None}
    form.skip_rest(PATH)
    return {"response_format": {"type": kind, "json_schema": schema}}, {"format": {"type": kind, **schema}}


def _reasoning(fields: Fields) -> dict[str, Any]:
    reasoning = Fields(fields.mapping("reasoning") or {}, "reasoning.")
    effort = reasoning.text("effort")
    for name in ("summary", "generate_summary"):  # "auto" is the best that a model has, and this one has none
        if reasoning.choice(name, ("auto", "concise", "detailed")) not in (None, "auto"):
            raise _unsupported(f"reasoning.{name}", "a summary")
    reasoning.skip_rest(PATH)
    return {} if effort is None else {"reasoning_effort": effort}


def _logprobs(fields: Fields) -> dict[str, Any]:
    included = fields.list("include") or []
    for index, name in enumerate(included):
        if name not in _INCLUDED:
            param = f"include[{index}]"
            allowed = " and ".join(f"'{each}'" for each in _INCLUDED)
            raise bad_request(f"{param} is not supported; {allowed} are", param, code="unsupported_field")
    top = fields.integer("top_logprobs", low=0, high=_MAX_TOP_LOGPROBS)
    if _LOGPROBS not in included:
        if top:
            message = f"top_logprobs goes with include: ['{_LOGPROBS}']"
            raise bad_request(message, "top_logprobs")
        return {}
    return {"logprobs": True, "top_logprobs": top or 0}


def _sampling(fields: Fields) -> dict[str, Any]:
    """Options under their own names; they are checked where all options are."""
    given = {name: fields.any(name) for name in _EXTENSIONS}
    given["max_new_tokens"] = fields.integer("max_output_tokens", low=1)
    return {name: value for name, value in given.items() if value is not None}


def _echo(body: Mapping[str, Any], scores: Mapping[str, Any]) -> dict[str, Any]:
    """What the response repeats of fields that have been read."""
    reasoning = body.get("reasoning") or {}
    return {
        "background": False,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": body.get("previous_response_id"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "store": body.get("store") is not False,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [{"strict": False, **tool} for tool in body.get("tools") or ()],
        "top_logprobs": scores.get("top_logprobs", 0),
        "truncation": "disabled",
        "user": body.get("user"),
    }

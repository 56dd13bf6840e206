"""JSON Schemas of request bodies, for the OpenAPI document. Every field may be null, which is as good as absent.

A body that fits its schema may still be refused: what a package can do, or how fields go together, no schema says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]


def _of(type: str, **rules: Any) -> Schema:
    return {"type": [type, "null"], **rules}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed}


def _list(items: Schema, **rules: Any) -> Schema:
    return {"type": "array", "items": items, **rules}


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


TEXT: Final = _of("string")
FLAG: Final = _of("boolean")
ANY_OBJECT: Final = _of("object")
COUNT: Final = _of("integer", minimum=0)
POSITIVE: Final = _of("integer", minimum=1)
NUMBER: Final = _of("number")
SHARE: Final = _of("number", minimum=0, maximum=1)
TOKENS: Final = _list({"type": "integer", "minimum": 0})
_STRING: Final[Schema] = {"type": "string"}
_STOP: Final = {"anyOf": [_STRING, _list(_STRING), {"type": "null"}]}

# Options of generation that all interfaces take, under the names of docs/sampling.md.
OPTIONS: Final[Mapping[str, Schema]] = {
    "parameters": ANY_OBJECT,
    "timeout": _of("number", exclusiveMinimum=0),
    "min_new_tokens": COUNT,
    "temperature": _of("number", minimum=0),
    "top_k": COUNT,
    "top_p": SHARE,
    "min_p": SHARE,
    "typical_p": SHARE,
    "top_a": SHARE,
    "xtc_probability": SHARE,
    "xtc_threshold": SHARE,
    "mirostat": _of("integer", enum=[0, 2, None]),
    "mirostat_tau": _of("number", exclusiveMinimum=0),
    "mirostat_eta": _of("number", exclusiveMinimum=0),
    "repetition_penalty": _of("number", exclusiveMinimum=0),
    "frequency_penalty": NUMBER,
    "presence_penalty": NUMBER,
    "no_repeat_ngram_size": COUNT,
    "dry_multiplier": _of("number", minimum=0),
    "dry_base": NUMBER,
    "dry_allowed_length": COUNT,
    "dry_sequence_breakers": _nullable(_list({"type": ["string", "integer"]})),
    "dry_range": COUNT,
    "logit_bias": _of("object", additionalProperties={"type": "number"}),
    "banned_token_ids": _nullable(TOKENS),
    "forced_token_ids": _nullable(TOKENS),
    "logprobs_of": _of("string", enum=["model", "processed", None]),
    "seed": _of("integer"),
    "stop": _STOP,
    "stop_token_ids": _nullable(TOKENS),
    "ignore_eos": FLAG,
    "n": POSITIVE,
    "response_format": ANY_OBJECT,
    "regex": TEXT,
    "grammar": TEXT,
    "choices": _nullable(_list(_STRING)),
    "reasoning_budget": COUNT,
    "num_beams": POSITIVE,
    "length_penalty": NUMBER,
    "early_stopping": FLAG,
    "speculate": FLAG,
}
_FORM: Final[Mapping[str, Schema]] = {"chat_template_kwargs": ANY_OBJECT, "parallel_tool_calls": FLAG}
_QUEUEING: Final[Mapping[str, Schema]] = {
    "model": TEXT,
    "stream": FLAG,
    "stream_options": _nullable(_object(include_usage=FLAG)),
    "priority": _of("string", enum=["low", "normal", "high", None]),
    "service_tier": _of("string", enum=["auto", "default", "flex", "priority", None]),
    "metadata": _of("object", additionalProperties=_STRING),
    "user": TEXT,
}
_TEXT_PARTS: Final = _list(_object(("type",), type={"const": "text"}, text=_STRING), minItems=1)
_LINK: Final = {"anyOf": [_STRING, _object(("url",), url=_STRING, detail=TEXT)]}  # https: or data:
_PART: Final = _object(
    ("type",),
    type={"enum": ["text", "image_url", "input_audio", "audio_url", "input_text", "input_image"]},
    text=_STRING,
    image_url=_LINK,
    audio_url=_LINK,
    input_audio=_object(("data",), data=_STRING, format={"enum": ["wav", "mp3", "flac", "ogg"]}),
)
_CONTENT: Final = {"anyOf": [_STRING, _list(_PART, minItems=1)]}
_MESSAGE: Final = _object(
    ("role",),
    role={"enum": ["system", "developer", "user", "assistant", "tool"]},
    content=_nullable(_CONTENT),
    tool_calls=_nullable(_list({"type": "object"})),
    tool_call_id=TEXT,
)
_FUNCTION: Final = _object(("name",), name=_STRING, description=TEXT, parameters=ANY_OBJECT, strict=FLAG)
_TOOLS: Final = _nullable(_list(_object(("type", "function"), type={"const": "function"}, function=_FUNCTION)))
_CHOICE: Final = {"anyOf": [{"enum": ["auto", "none", "required", None]}, {"type": "object"}]}
_LIMITS: Final[Mapping[str, Schema]] = {"max_tokens": POSITIVE, "max_completion_tokens": POSITIVE}
_TALKING: Final[Mapping[str, Schema]] = {
    **OPTIONS,
    **_FORM,
    **_QUEUEING,
    **_LIMITS,
    "tools": _TOOLS,
    "tool_choice": _CHOICE,
    "reasoning_effort": TEXT,
    "logprobs": FLAG,
    "top_logprobs": COUNT,
}


def _without(given: Mapping[str, Schema], *names: str) -> dict[str, Schema]:
    return {name: schema for name, schema in given.items() if name not in names}


_ITEM: Final = {
    "anyOf": [
        _object(("role", "content"), role={"enum": ["user", "assistant", "system", "developer"]}, content=_CONTENT),
        _object(
            ("type", "call_id", "name", "arguments"),
            type={"const": "function_call"},
            call_id=_STRING,
            name=_STRING,
            arguments=_STRING,
        ),
        _object(
            ("type", "call_id", "output"), type={"const": "function_call_output"}, call_id=_STRING, output=_CONTENT
        ),
        _object(("type",), type={"const": "reasoning"}, summary=_list({"type": "object"})),
    ]
}
_SOURCE: Final = _object(("type",), type={"enum": ["base64", "url"]}, media_type=_STRING, data=_STRING, url=_STRING)
_BLOCK: Final = _object(
    ("type",),
    type={"enum": ["text", "image", "thinking", "tool_use", "tool_result"]},
    text=_STRING,
    thinking=_STRING,
    source=_SOURCE,
)
_SAID: Final = {"anyOf": [_STRING, _list(_BLOCK, minItems=1)]}
_ANTHROPIC: Final[Mapping[str, Schema]] = {
    "messages": _list(
        _object(("role", "content"), role={"enum": ["user", "assistant", "system"]}, content=_SAID), minItems=1
    ),
    "model": TEXT,
    "system": _nullable({"anyOf": [_STRING, _TEXT_PARTS]}),
    "thinking": _nullable(_object(("type",), type={"enum": ["enabled", "disabled", "adaptive"]}, budget_tokens=COUNT)),
    "tools": _nullable(_list(_object(("name", "input_schema"), name=_STRING, input_schema={"type": "object"}))),
    "tool_choice": _nullable(_object(("type",), type={"enum": ["auto", "any", "tool", "none"]}, name=TEXT)),
    "output_config": _nullable(_object(effort=TEXT, format=ANY_OBJECT)),
}
_NOT_ANTHROPIC: Final = ("n", "stop", "response_format", "reasoning_budget", "parallel_tool_calls", *_QUEUEING)

_TASK: Final[Mapping[str, Schema]] = {
    "model": TEXT,
    "user": TEXT,
    "parameters": ANY_OBJECT,
    "seed": OPTIONS["seed"],
    "timeout": OPTIONS["timeout"],
    "priority": _QUEUEING["priority"],
    "service_tier": _QUEUEING["service_tier"],
}

BODIES: Final[Mapping[str, Schema]] = {
    "/v1/chat/completions": _object(("messages",), messages=_list(_MESSAGE, minItems=1), session=TEXT, **_TALKING),
    "/v1/completions": _object(
        ("prompt",),
        prompt={"anyOf": [_STRING, _list(_STRING, minItems=1), {**TOKENS, "minItems": 1}]},
        suffix=TEXT,
        echo=FLAG,
        best_of=POSITIVE,
        logprobs=COUNT,
        **_without({**OPTIONS, **_QUEUEING, **_LIMITS}, "metadata"),
    ),
    "/v1/responses": _object(
        ("input",),
        input={"anyOf": [_STRING, _list(_ITEM, minItems=1)]},
        instructions=TEXT,
        max_output_tokens=POSITIVE,
        previous_response_id=TEXT,
        store=FLAG,
        tools=_nullable(_list({**_FUNCTION, "properties": {**_FUNCTION["properties"], "type": {"const": "function"}}})),
        tool_choice=_CHOICE,
        reasoning=_nullable(_object(effort=TEXT)),
        text=_nullable(_object(format=ANY_OBJECT)),
        include=_nullable(_list({"enum": ["message.output_text.logprobs", "reasoning.encrypted_content"]})),
        top_logprobs=_of("integer", minimum=0, maximum=20),
        **_without({**OPTIONS, **_FORM, **_QUEUEING}, "n", "response_format"),
    ),
    "/v1/messages": _object(
        ("messages", "max_tokens"),
        max_tokens={"type": "integer", "minimum": 1},
        stop_sequences=_nullable(_list(_STRING)),
        stream=FLAG,
        metadata=_nullable(_object(user_id=TEXT)),
        service_tier=_of("string", enum=["auto", "standard_only", None]),
        priority=_QUEUEING["priority"],
        **_ANTHROPIC,
        **_without({**OPTIONS, **_FORM}, *_NOT_ANTHROPIC),
    ),
    "/v1/messages/count_tokens": _object(("messages",), **_ANTHROPIC),
    "/v1/sessions": _object(model=TEXT, messages=_nullable(_list(_MESSAGE))),
    "/v1/sessions/{id}/messages": _object(
        ("content",),
        content=_CONTENT,
        role={"enum": ["user", "tool", "system"]},
        tool_call_id=TEXT,
        **_without(_TALKING, "model", "n"),
    ),
    "/v1/sessions/{id}/fork": _object(),
    "/v1/sessions/{id}/rewind": _object(("turn",), turn={"type": "integer", "minimum": 0}),
    "/v1/embeddings": _object(
        ("input",),
        input={"anyOf": [_STRING, _list(_STRING, minItems=1), {**TOKENS, "minItems": 1}]},
        dimensions=POSITIVE,
        encoding_format=_of("string", enum=["float", "base64", None]),
        **_TASK,
    ),
    "/v1/audio/speech": _object(
        ("input",),
        input=_STRING,
        voice=TEXT,
        instructions=TEXT,
        speed=_of("number", minimum=0.25, maximum=4),
        response_format=_of("string", enum=["wav", "pcm", None]),
        stream_format=_of("string", enum=["audio", "sse", None]),
        **_TASK,
    ),
    "/tokenize": _object(model=TEXT, prompt=TEXT, messages=_nullable(_list(_MESSAGE))),
    "/detokenize": _object(("tokens",), tokens=TOKENS, model=TEXT, skip_special_tokens=FLAG),
}
FORMS: Final[Mapping[str, Schema]] = {  # multipart/form-data
    "/v1/audio/transcriptions": {
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "model": _STRING,
            "language": _STRING,
            "prompt": _STRING,
            "temperature": {"type": "number", "minimum": 0},
            "response_format": {"enum": ["json", "text", "srt", "verbose_json", "vtt"]},
            "timestamp_granularities[]": _list({"const": "segment"}),
            "stream": {"type": "boolean"},
            "seed": {"type": "integer"},
            "timeout": {"type": "number", "exclusiveMinimum": 0},
            "priority": {"enum": ["low", "normal", "high"]},
            "parameters": {"type": "object"},
        },
    },
}
STREAMED: Final = frozenset(
    path for path, body in {**BODIES, **FORMS}.items() if {"stream", "stream_format"} & set(body["properties"])
)

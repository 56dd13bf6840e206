"""What chat and text completions have in common: fields that become options of a request, and those that cannot.

Every option of a request has a field: OpenAI's own where there is one, else one of the option's name. What a client
leaves out stays out, so that the package's defaults hold; what it says is passed on as it is, zeros too, and checked
where all options are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from genai_pipeline.server.bodies import Fields
from genai_pipeline.types import RequestOptions

_LIMIT: Final = "max_new_tokens"
_LIMIT_FIELDS: Final = ("max_completion_tokens", "max_tokens", _LIMIT)  # the newest one first: it wins

# Options that a field of another name or form stands for, or that are not for clients.
_ELSEWHERE: Final = frozenset(
    (
        "messages",
        "tokens",
        "system",
        "raw",
        "suffix",
        "images",
        "audio",
        "key",
        "priority",
        _LIMIT,
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning_effort",
        "chat_template_kwargs",
    )
)
SHARED: Final = tuple(name for name in RequestOptions.__annotations__ if name not in _ELSEWHERE)

_OPTIONS: Final = frozenset(("prompt", *RequestOptions.__annotations__))
_SCORING: Final = "/v1/completions, with echo and logprobs"
# What stands for the options of a request that an interface has no field for; each says its own besides these.
_INSTEAD: Final[Mapping[str, str]] = {
    "prompt": "/v1/completions, or messages",
    "messages": "/v1/chat/completions",
    "system": "a message with the role system",
    "raw": "/v1/completions, whose prompts are raw",
    "suffix": "/v1/completions",
    "tokens": "/v1/completions, with token ids as its prompt",
    "prompt_logprobs": _SCORING,
    "logprobs": "/v1/chat/completions",
    "top_logprobs": "/v1/chat/completions",
    "key": "an API key: a request's share is that of the key it comes with",
}

# Constraints as other servers name them: never skipped, as the answer would be free.
_FOREIGN: Final[Mapping[str, str]] = {
    "guided_json": "response_format",
    "guided_regex": "regex",
    "guided_grammar": "grammar",
    "guided_choice": "choices",
    "structured_outputs": "response_format, regex, grammar or choices",
    "json_schema": "response_format",
}

# Fields that change no answer, with the type they have.
_NOTED: Final = ("user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")

# Service tier -> priority, and the other way round what a response says.
_PRIORITIES: Final[Mapping[str, str]] = {"auto": "normal", "default": "normal", "flex": "low", "priority": "high"}
_TIERS: Final[Mapping[str, str]] = {"normal": "default", "low": "flex", "high": "priority"}

MAX_PAIRS: Final = 16
MAX_PAIR_KEY: Final = 64
MAX_PAIR_VALUE: Final = 512


def read_options(fields: Fields, *more: str, least: int = 1) -> tuple[dict[str, Any], dict[str, str]]:
    """The options of a request that the fields give, and the field of those that have another name.

    ``more`` are further options with fields of their own name; ``least`` tokens must be asked for. Raises ApiError 400.
    """
    refuse_media(fields)
    for field, ours in _FOREIGN.items():
        if fields.any(field) is not None:
            raise fields.wrong(field, f"is not known here: use {ours}")
    options = {name: value for name in (*SHARED, *more) if (value := fields.any(name)) is not None}
    names = {}
    for field in _LIMIT_FIELDS:
        limit = fields.integer(field, low=least)
        if limit is not None and _LIMIT not in options:
            options[_LIMIT] = limit
            names[_LIMIT] = field
    return options, names


def refuse_media(fields: Fields) -> None:
    """Media come in messages: beside them, a text would be a path of this machine. Raises ApiError 400."""
    fields.refuse("images", "audio")


def refuse_others(fields: Fields, instead: Mapping[str, str], among: Iterable[str] = _OPTIONS) -> None:
    """Refuse options of a request that nobody has read, when all fields have been: no route drops one silently.

    ``instead`` has what stands for them in this interface, where that is not the same in all. Raises ApiError 400.
    """
    for name in sorted(fields.rest().keys() & _OPTIONS.intersection(among)):
        ours = {**_INSTEAD, **instead}.get(name)
        if ours is None:
            fields.refuse(name)
        else:
            fields.refuse_for({name: ours})


def read_priority(fields: Fields) -> str:
    """The priority of a request, by its own name or as a service tier. Raises ApiError 400."""
    tier = fields.choice("service_tier", _PRIORITIES)
    priority = fields.choice("priority", _TIERS)
    if tier is not None and priority is not None:
        raise fields.wrong("priority", "says the same as service_tier: give one of the two")
    return priority or _PRIORITIES[tier or "default"]


def tier_of(priority: str) -> str:
    """The service tier that a priority comes to."""
    return _TIERS[priority]


def read_stream(fields: Fields) -> tuple[bool, bool]:
    """Whether to stream, and whether the stream ends with usage. Raises ApiError 400."""
    stream = fields.boolean("stream") or False
    given = fields.mapping("stream_options")
    if given is None:
        return stream, False
    if not stream:
        raise fields.wrong("stream_options", "goes with stream: true only")
    options = Fields(given, "stream_options.")
    usage = options.boolean("include_usage") or False
    if options.boolean("include_obfuscation"):
        options.refuse("include_obfuscation")
    return stream, usage


def calls_follow_grammar(options: Mapping[str, Any]) -> bool:
    """Whether every call is written by the grammar of the tools, so that it can only be cut, never malformed."""
    tools, choice = options.get("tools"), options.get("tool_choice")
    if not tools or choice == "none":
        return False
    return choice == "required" or isinstance(choice, Mapping) or any(map(_is_strict, tools))


def _is_strict(tool: Any) -> bool:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    return isinstance(function, Mapping) and function.get("strict") is True


def note_fields(fields: Fields) -> None:
    """Take note of what says who asks, or how to cache: no answer depends on it. Raises ApiError 400."""
    for name in _NOTED:
        fields.text(name)
    fields.mapping("prompt_cache_options")


def read_metadata(fields: Fields) -> dict[str, str] | None:
    """Pairs of texts that the response repeats. Raises ApiError 400."""
    given = fields.mapping("metadata")
    if given is None:
        return None
    if len(given) > MAX_PAIRS:
        raise fields.wrong("metadata", f"has {len(given)} pairs; at most {MAX_PAIRS}")
    for key, value in given.items():
        if not isinstance(value, str):
            raise fields.wrong("metadata", "must map texts to texts")
        if len(key) > MAX_PAIR_KEY or len(value) > MAX_PAIR_VALUE:
            most = f"{MAX_PAIR_KEY} characters in a key and {MAX_PAIR_VALUE} in a value"
            raise fields.wrong("metadata", f"may have {most}")
    return dict(given)

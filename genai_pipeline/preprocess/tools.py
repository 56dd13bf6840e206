"""Tools that a request offers to the model, and whether it may, must or must not call them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from genai_pipeline.errors import OptionError
from genai_pipeline.option_values import boolean
from genai_pipeline.preprocess.messages import plain_data
from genai_pipeline.problems import nearest, one_of, shown

MAX_TOOLS: Final = 512
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MODES: Final = ("auto", "none", "required")
_NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tool:
    """One function; ``parameters`` is the JSON Schema of the object of its arguments."""

    name: str
    parameters: Mapping[str, Any]
    strict: bool
    given: Mapping[str, Any]  # as the request has it, for the chat template


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a request says about tools, when the model may call any; ``name``: the one that it must call."""

    tools: tuple[Tool, ...]
    mode: Literal["auto", "required"] = "auto"
    name: str | None = None
    parallel: bool = True

    @property
    def callable(self) -> tuple[Tool, ...]:
        """The tools that a call may name."""
        return tuple(tool for tool in self.tools if self.name in (None, tool.name))

    @property
    def names(self) -> frozenset[str]:
        """The names that a call may have."""
        return frozenset(tool.name for tool in self.callable)

    @property
    def constrained(self) -> bool:
        """Whether calls must be written by the grammar of the tools: a call is due, or a tool is strict."""
        return self.mode == "required" or any(tool.strict for tool in self.tools)

    def shown(self) -> list[Mapping[str, Any]]:
        """The tools as the chat template gets them."""
        return [tool.given for tool in self.tools]


def read_tool_use(tools: Any = None, tool_choice: Any = None, parallel_tool_calls: Any = None) -> ToolUse | None:
    """What ``tools``, ``tool_choice`` and ``parallel_tool_calls`` of a request come to; None: no calls.

    With choice ``none`` the model is not shown any tool. Raises OptionError naming the field at fault.
    """
    offered = _tools(tools)
    mode, name = _choice("auto" if tool_choice is None else tool_choice, [tool.name for tool in offered])
    parallel = True if parallel_tool_calls is None else boolean("parallel_tool_calls", parallel_tool_calls)
    if not offered and mode == "required":
        message = "tool_choice asks for a call, but the request has no tools"
        raise OptionError(message, param="tool_choice", hint="give tools, or leave tool_choice out")
    if not offered or mode == "none":
        return None
    return ToolUse(offered, "required" if mode == "required" else "auto", name, parallel)


def _tools(given: Any) -> tuple[Tool, ...]:
    if given is None:
        return ()
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise OptionError(f"tools must be a list, not {type(given).__name__}", param="tools")
    if len(given) > MAX_TOOLS:
        raise OptionError(f"tools has {len(given)} entries; at most {MAX_TOOLS}", param="tools")
    tools = tuple(_tool(f"tools[{index}]", tool) for index, tool in enumerate(given))
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            raise OptionError(f"tools[{index}] is another tool named {tool.name!r}", param=f"tools[{index}]")
        seen.add(tool.name)
    return tools


def _tool(where: str, given: Any) -> Tool:
    if not isinstance(given, Mapping):
        raise OptionError(f"{where} must be an object, not {type(given).__name__}", param=where)
    hint = '{"type": "function", "function": {"name": ..., "description": ..., "parameters": {...}}}'
    if given.get("type") != "function":
        message = f"{where}.type must be 'function', not {shown(given.get('type'))}"
        raise OptionError(message, param=f"{where}.type", hint=hint)
    function = given.get("function")
    if not isinstance(function, Mapping):
        raise OptionError(f"{where}.function must be an object", param=f"{where}.function", hint=hint)
    plain: dict[str, Any] = plain_data(where, given)
    return Tool(
        name=_name(f"{where}.function.name", function.get("name")),
        parameters=_parameters(f"{where}.function.parameters", plain["function"].get("parameters")),
        strict=_strict(f"{where}.function.strict", function.get("strict")),
        given=plain,
    )


def _name(where: str, name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        allowed = "1 to 64 of a-z, A-Z, 0-9, '_', '-' and '.'"
        raise OptionError(f"{where} must be {allowed}, not {shown(name)}", param=where)
    return name


def _strict(where: str, strict: Any) -> bool:
    return False if strict is None else boolean(where, strict)


def _parameters(where: str, schema: Any) -> Mapping[str, Any]:
    if schema is None:
        return _NO_ARGUMENTS
    if not isinstance(schema, dict):
        raise OptionError(f"{where} must be a JSON Schema object, not {type(schema).__name__}", param=where)
    kind = schema.get("type", "object")
    if kind != "object":
        message = f"{where}.type must be 'object', since arguments have names, not {shown(kind)}"
        raise OptionError(message, param=f"{where}.type")
    return {"type": "object", **schema}


def _choice(given: Any, names: Sequence[str]) -> tuple[str, str | None]:
    """The mode of a tool choice, and the tool it names."""
    if isinstance(given, str):
        if given not in _MODES:
            hint = nearest(given, _MODES) or 'to name a tool: {"type": "function", "function": {"name": ...}}'
            raise OptionError(f"tool_choice must be {one_of(_MODES)} or name a tool, not {shown(given)}",
                              param="tool_choice", hint=hint)  # fmt: skip
        return given, None
    function = given.get("function") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or given.get("type") != "function" or not isinstance(function, Mapping):
        message = f"tool_choice must be {one_of(_MODES)} or name a tool, not {shown(given)}"
        raise OptionError(message, param="tool_choice", hint='{"type": "function", "function": {"name": ...}}')
    name = function.get("name")
    if not isinstance(name, str) or name not in names:
        hint = nearest(name, names) if isinstance(name, str) else ""
        hint = hint or (f"tools are: {one_of(names)}" if names else "there are none: give tools too")
        raise OptionError(
            f"tool_choice names {shown(name)}, which is not among the tools", param="tool_choice", hint=hint
        )
    return "required", name

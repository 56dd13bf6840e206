"""Tools of a Responses request in the form that the rest of the project knows: functions, and how they are chosen."""

from __future__ import annotations

from typing import Any, Final

from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.bodies import SHOWN, Fields

MODES: Final = ("auto", "none", "required")


def read_tools(fields: Fields) -> dict[str, Any]:
    """``tools``, ``tool_choice`` and ``parallel_tool_calls`` for ``Pipeline.aopen``. Raises ApiError."""
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(fields.list("tools") or ())]
    choice, allowed = _choice(fields)
    if allowed is not None:
        tools = [tool for tool in tools if tool["function"]["name"] in allowed]
    read = {"tools": tools or None, "tool_choice": choice, "parallel_tool_calls": fields.boolean("parallel_tool_calls")}
    return {name: value for name, value in read.items() if value is not None}


def _tool(tool: Any, at: str) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise bad_request(f"{at} must be an object", at)
    fields = Fields(tool, f"{at}.")
    kind = fields.must("type", fields.text("type"))
    if kind != "function":
        raise _only_functions(f"{at}.type", kind)
    function = {
        "name": fields.must("name", fields.text("name")),
        "description": fields.text("description"),
        "parameters": fields.mapping("parameters"),
        "strict": fields.boolean("strict"),
    }
    fields.refuse("defer_loading", "output_schema", "allowed_callers")
    fields.skip_rest("/v1/responses")
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _choice(fields: Fields) -> tuple[Any, frozenset[str] | None]:
    """The choice, and the names of the tools that it allows where it names some."""
    given = fields.any("tool_choice")
    if given is None or (isinstance(given, str) and given in MODES):
        return given, None
    if not isinstance(given, dict):
        raise fields.wrong("tool_choice", "must be 'auto', 'none', 'required', or name a function")
    choice = Fields(given, "tool_choice.")
    kind = choice.must("type", choice.text("type"))
    if kind == "function":
        name = choice.must("name", choice.text("name"))
        return {"type": "function", "function": {"name": name}}, None
    if kind == "allowed_tools":
        mode = choice.must("mode", choice.choice("mode", ("auto", "required")))
        return mode, _allowed(choice)
    raise _only_functions("tool_choice.type", kind)


def _allowed(choice: Fields) -> frozenset[str]:
    names = []
    for index, tool in enumerate(choice.must("tools", choice.list("tools"))):
        at = f"tool_choice.tools[{index}]"
        if not isinstance(tool, dict):
            raise bad_request(f"{at} must be an object", at)
        fields = Fields(tool, f"{at}.")
        kind = fields.must("type", fields.text("type"))
        if kind != "function":
            raise _only_functions(f"{at}.type", kind)
        names.append(fields.must("name", fields.text("name")))
    return frozenset(names)


def _only_functions(param: str, kind: str) -> ApiError:
    message = f"{param}: tools of type '{kind[:SHOWN]}' are not supported; functions are"
    return bad_request(message, param, code="unsupported_tool")

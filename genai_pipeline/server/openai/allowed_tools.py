"""The tool choice ``allowed_tools`` of chat completions: the model is offered some of the tools, and no others."""

from __future__ import annotations

from typing import Any, Final

from genai_pipeline.server.api_errors import bad_request
from genai_pipeline.server.bodies import Fields

_KIND: Final = "allowed_tools"
_MODES: Final = ("auto", "required")


def narrowed(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the tools that may be called, where their choice names some. Raises ApiError 400."""
    choice = options.get("tool_choice")
    if not isinstance(choice, dict) or choice.get("type") != _KIND:
        return options
    outer = Fields(choice, "tool_choice.")
    at = f"tool_choice.{_KIND}"
    inner = Fields(outer.must(_KIND, outer.mapping(_KIND)), f"{at}.")
    mode = inner.must("mode", inner.choice("mode", _MODES))
    given = options.get("tools")
    offered = given if isinstance(given, list) else []
    known = {_name(tool) for tool in offered}
    allowed = set()
    for index, tool in enumerate(inner.must("tools", inner.list("tools"))):
        name = _name(tool)
        if name is None or name not in known:
            raise bad_request(f"{at}.tools[{index}] names no function among the tools", f"{at}.tools[{index}]")
        allowed.add(name)
    return {**options, "tools": [tool for tool in offered if _name(tool) in allowed], "tool_choice": mode}


def _name(tool: Any) -> str | None:
    """The name of a function as a tool."""
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None

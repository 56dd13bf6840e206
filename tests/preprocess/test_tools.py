"""Tools of a request: their shape, the choice among them, and errors that name the field."""

from __future__ import annotations

from typing import Any

import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.preprocess.tools import read_tool_use


def tool(name: Any = "f", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def test_tools_are_offered_as_they_are():
    given = [
        tool("f", description="Does.", parameters={"properties": {"x": {"type": "integer"}}}),
        tool("g", strict=True),
    ]
    use = read_tool_use(given)
    assert use is not None
    assert (use.mode, use.name, use.parallel, use.constrained) == ("auto", None, True, True)
    assert use.shown() == given
    assert use.names == {"f", "g"}
    assert use.tools[0].parameters == {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert use.tools[1].parameters["additionalProperties"] is False
    assert not read_tool_use([tool()]).constrained  # type: ignore[union-attr]


def test_a_choice_says_what_may_be_called():
    both = [tool("f"), tool("g")]
    named = read_tool_use(both, {"type": "function", "function": {"name": "g"}}, False)
    assert named is not None
    assert (named.mode, named.name, named.parallel, named.constrained) == ("required", "g", False, True)
    assert named.names == {"g"}
    assert len(named.shown()) == 2
    required = read_tool_use(both, "required")
    assert required is not None
    assert required.names == {"f", "g"}
    assert read_tool_use(both, "auto") == read_tool_use(both)


@pytest.mark.parametrize(
    ("tools", "choice"), [(None, "none"), ([], "none"), ([tool()], "none"), (None, None), ([], None), ([], "auto")]
)
def test_without_tools_or_with_choice_none_nothing_is_called(tools, choice):
    assert read_tool_use(tools, choice) is None


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"tools": "f"}, "tools"),
        ({"tools": {"type": "function"}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"name": "f"}]}, "tools[0].type"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "f"}]}, "tools[0].function"),
        ({"tools": [tool(), tool(5)]}, "tools[1].function.name"),
        ({"tools": [tool("two words")]}, "tools[0].function.name"),
        ({"tools": [tool("")]}, "tools[0].function.name"),
        ({"tools": [tool("f"), tool("f")]}, "tools[1]"),
        ({"tools": [tool(parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [tool(parameters={"type": "string"})]}, "tools[0].function.parameters.type"),
        ({"tools": [tool(strict="yes")]}, "tools[0].function.strict"),
        ({"tools": [tool(x=object())]}, "tools[0].function.x"),
        ({"tools": [tool()], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": "f"}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": 1}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": [tool()], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
)
def test_what_is_wrong_is_named(given, param):
    with pytest.raises(Exception, match=r".") as caught:
        read_tool_use(**given)
    assert caught.value.param == param  # type: ignore[attr-defined]
    assert caught.value.message  # type: ignore[attr-defined]


def test_the_nearest_tool_is_suggested():
    with pytest.raises(OptionError) as caught:
        read_tool_use([tool("get_weather")], {"type": "function", "function": {"name": "get_wether"}})
    assert "get_weather" in caught.value.hint

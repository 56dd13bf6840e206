"""Every format of calls: what is a call, what is text, and that cutting the text changes nothing."""

# ruff: noqa: E501

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from genai_pipeline.parsing.registry import FORMATS

PARIS = ("get_weather", '{"city": "Paris"}')
NOW = ("now", "{}")
TRICKY = '{"city": "Zürich \\"x\\" \\\\ \\u00e9 \\n 👩‍👩‍👧 </tool_call> ]", "more": {"a": [1, -2.5e3, {"b": null}], "c": true}}'
MUST_FIND: dict[str, list[tuple[str, str, list[tuple[str, str]]]]] = {
    "json_tagged": [
        ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', "", [PARIS]),
        ('<tool_call>{"name":"now","arguments":{}}</tool_call>', "", [NOW]),
        ('<tool_call>{"name":"now"}</tool_call>', "", [NOW]),
        ('<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>', "", [PARIS]),
        ('<tool_call>{"id": 7, "name": "now", "parameters": {}, "x": [1, {"y": "}"}]}</tool_call>', "", [NOW]),
        ('<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>', "", [PARIS]),
        (f'<tool_call>{{"name": "get_weather", "arguments": {TRICKY}}}</tool_call>', "", [("get_weather", TRICKY)]),
        ('I look.\n\n<tool_call>\n{"name": "now"}\n</tool_call>\n', "I look.", [NOW]),
        ('<tool_call>{"name": "now"}</tool_call>\n<tool_call>{"name": "now"}</tool_call> done', "done", [NOW, NOW]),
        ('a <tool_call>{"name": "now"}</tool_call> b <tool_call>{"name": "now"}</tool_call> c', "a b c", [NOW, NOW]),
        ('<tool_call>{"name": "now"}', "", [NOW]),  # the closing tag was not written any more
        ('<tool_call>{"name": "now"}<tool_call>{"name": "now"}</tool_call>', "", [NOW, NOW]),
    ],
    "mistral_list": [
        ('[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]', "", [PARIS]),
        ('[TOOL_CALLS][{"name":"now","arguments":{},"id":"abcdefghi"},{"name":"now"}]', "", [NOW, NOW]),
        (f'Well. [TOOL_CALLS] [{{"name": "get_weather", "arguments": {TRICKY}}}]', "Well.", [("get_weather", TRICKY)]),
        ('[TOOL_CALLS] [{"name": "now"} , {"name": "now"} ] after', "after", [NOW, NOW]),
        ('[TOOL_CALLS] [{"name": "now"}', "", [NOW]),
    ],
    "llama_python_tag": [
        ('<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
        ('{"name": "get_weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
        ('\n {"type": "function", "name": "now", "parameters": {}}', "", [NOW]),
        ('<|python_tag|>{"name": "now", "parameters": {}}; {"name": "now", "parameters": {}}', "", [NOW, NOW]),
        ('{"name": "now"}\n{"name": "now"}', "", [NOW, NOW]),
        ('Sure <|python_tag|>{"name": "now"} there', "Sure there", [NOW]),
        (f'{{"name": "get_weather", "parameters": {TRICKY}}}', "", [("get_weather", TRICKY)]),
    ],
    "pythonic": [
        ('[get_weather(city="Paris")]', "", [PARIS]),
        ("[get_weather(city='Paris'), now()]", "", [PARIS, NOW]),
        ("[ now( ) , now() ,]", "", [NOW, NOW]),
        ("[now()]\n[now()] done", "done", [NOW, NOW]),
        (
            '[get_weather(city="a\\"b\\u00e9\\x41\\101\\q\\\n", days=-3, metric=True, share=1., tags=("x", \'y\'), '
            'more={"k": [None, .5, {}], "l": false}, note=None)]',
            "",
            [
                (
                    "get_weather",
                    '{"city": "a\\"béAA\\\\q", "days": -3, "metric": true, "share": 1.0, "tags": ["x", "y"], '
                    '"more": {"k": [null, 0.5, {}], "l": false}, "note": null}',
                )
            ],
        ),
        ('[any_of_it(code="""a\n"b" \'c\'\n""", empty="", e2=\'\')]', "",
         [("any_of_it", '{"code": "a\\n\\"b\\" \'c\'\\n", "empty": "", "e2": ""}')]),
    ],
    "xml_tagged": [
        ("<function=get_weather><parameter=city>Paris</parameter></function>", "", [PARIS]),
        ("<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>", "", [PARIS]),
        ("<tool_call>\n<function=now>\n</function>\n</tool_call>\n", "", [NOW]),
        ("I look.\n<tool_call>\n<function=now></function>\n</tool_call>\n<function=now></function>!", "I look.\n!", [NOW, NOW]),
        (
            "<function=get_weather>\n<parameter=city>\n\n<b>\"A\"</b>\n\\ü\n\n</parameter>\n<parameter=days>\n3\n</parameter>"
            '<parameter=metric>True</parameter><parameter=share>2</parameter><parameter=tags>["a", "b"]</parameter>'
            '<parameter=more>{"a": {"b": 1}}</parameter><parameter=note>null</parameter></function>',
            "",
            [
                (
                    "get_weather",
                    '{"city": "\\n<b>\\"A\\"</b>\\n\\\\ü\\n", "days": 3, "metric": true, "share": 2, "tags": ["a", "b"], '
                    '"more": {"a": {"b": 1}}, "note": null}',
                )
            ],
        ),
        ("<function=get_weather><parameter=city>5</parameter><parameter=days>many</parameter></function>", "",
         [("get_weather", '{"city": "5", "days": "many"}')]),
        ("<function=any_of_it><parameter=a>7</parameter><parameter=b>x y</parameter></function>", "",
         [("any_of_it", '{"a": 7, "b": "x y"}')]),
    ],
}  # fmt: skip
MUST_NOT_FIND: dict[str, list[str]] = {
    "json_tagged": [
        "<tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>not JSON</tool_call>",
        '<tool_call>{"name": "nobody", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": 01}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": 1,}}</tool_call>',
        "<tool_call>{'name': 'now', 'arguments': {}}</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "now", "name": "now"}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {}, "parameters": {}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": "[]"}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": "\x01"}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": "\\x"}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": NaN}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": ' + "[" * 99 + "]" * 99 + "}}</tool_call>",
        'text before <tool_call>{"name": "get_weather", "arguments": {"city": "Par',
        "an answer about <tool_ and < signs </tool_call>\n",
        '{"name": "now", "arguments": {}}',
        "  \n ",
        "",
    ],
    "mistral_list": [
        "[TOOL_CALLS]",
        "[TOOL_CALLS] []",
        '[TOOL_CALLS] {"name": "now"}',
        '[TOOL_CALLS] [{"name": "nobody"}]',
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": ',
        '[{"name": "now"}]',
        "[TOOL_",
    ],
    "llama_python_tag": [
        '{"name": "nobody", "parameters": {}}',
        '{"a": 1}',
        "{",
        'Here: {"name": "now", "parameters": {}}',
        '<|python_tag|>now.call(query="x")',
        '{"name": "now", "parameters": {"a": ',
    ],
    "pythonic": [
        "[]",
        "[1, 2, 3]",
        "[nobody()]",
        "[now]",
        "[now(5)]",
        "[now(a=1, a=2)]",
        "[now(a=b)]",
        '[now(a="x\n")]',
        "[now(a=1__0)]",
        "[now(a=1e999)]",
        "[now(a=\\N{DASH})]",
        "[now(a='\\ud800')]",
        "[now(a=007)]",
        "[now(a={1: 2})]",
        "Look: [now()]",
        "now()",
        "[get_weather(city='Par",
    ],
    "xml_tagged": [
        "<function=nobody></function>",
        "<function=now>",
        "<function=now></function",
        "<function=now>text</function>",
        "<function=get_weather><parameter=city>Par</param",
        "<function=get_weather><parameter=city>a</parameter><parameter=city>b</parameter></function>",
        "<tool_call>\n{}\n</tool_call>",
        "<function\n",
    ],
}
FOUND = [(name, *case) for name, cases in MUST_FIND.items() for case in cases]
NOT_FOUND = [(name, text) for name, texts in MUST_NOT_FIND.items() for text in texts]


def test_every_format_of_the_registry_is_tested():
    assert MUST_FIND.keys() == MUST_NOT_FIND.keys() == FORMATS.keys()
    assert all(format.name == name for name, format in FORMATS.items())


@pytest.mark.parametrize(("format", "text", "left", "calls"), FOUND)
def test_calls_are_found_however_the_text_is_cut(parse, format, text, left, calls):
    for size in range(1, len(text) + 1):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert parse(format, pieces) == (left, calls)
    assert all(isinstance(json.loads(arguments), dict) for _, arguments in calls)


@pytest.mark.parametrize(("format", "text"), NOT_FOUND)
def test_what_is_no_call_comes_out_as_it_is(parse, format, text):
    for size in range(1, len(text) + 1):
        assert parse(format, [text[i : i + size] for i in range(0, len(text), size)]) == (text, [])


@pytest.mark.parametrize(
    ("format", "text", "left", "calls"),
    [
        ("json_tagged", '<tool_call>{"name": "now"}</tool_call>\n<tool_call>oops', "<tool_call>oops", [NOW]),
        ("json_tagged", '<tool_call><tool_call>{"name": "now"}</tool_call>', "<tool_call>", [NOW]),
        ("json_tagged", '<tool_call>{"name": <tool_call>{"name": "now"}</tool_call>', '<tool_call>{"name":', [NOW]),
        ("mistral_list", '[TOOL_CALLS] [{"name": "now"}, {"name": 5}]', ', {"name": 5}]', [NOW]),
        ("llama_python_tag", '{"name": "now"}; and more', "; and more", [NOW]),
        ("pythonic", "[now(), now(5)] x", ", now(5)] x", [NOW]),
        ("xml_tagged", "<function=now></function>\n<function=now>x", "\n<function=now>x", [NOW]),
    ],
)  # fmt: skip
def test_a_broken_call_takes_no_whole_one_with_it(parse, format, text, left, calls):
    for size in range(1, len(text) + 1):
        found = parse(format, [text[i : i + size] for i in range(0, len(text), size)])
        assert (found[0].strip(), found[1]) == (left.strip(), calls)


def as_python(value: Any) -> str:
    """A literal as a model may write it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {as_python(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_python, value))}]"
    return repr(value)


def write_call(format: str, name: str, arguments: dict[str, Any]) -> str:
    """A call as a model writes it, without what stands around it."""
    if format == "pythonic":
        return f"{name}({', '.join(f'{key}={as_python(value)}' for key, value in arguments.items())})"
    if format == "xml_tagged":
        values = "".join(f"<parameter={k}>\n{json.dumps(v)}\n</parameter>\n" for k, v in arguments.items())
        return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"
    key = "parameters" if format == "llama_python_tag" else "arguments"
    return json.dumps({"name": name, key: arguments}, ensure_ascii=len(name) % 2 == 0)


def write_calls(format: str, calls: list[tuple[str, dict[str, Any]]]) -> str:
    """Calls as a model writes them."""
    written = [write_call(format, name, arguments) for name, arguments in calls]
    if format == "json_tagged":
        return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in written)
    if format == "xml_tagged":
        return "\n".join(written)
    if format == "llama_python_tag":
        return "; ".join(written)
    return f"{'[TOOL_CALLS] ' if format == 'mistral_list' else ''}[{', '.join(written)}]"


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
keys = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
some_calls = st.lists(
    st.tuples(st.sampled_from(("any_of_it", "now")), st.dictionaries(keys, values, max_size=3)), min_size=1, max_size=3
)
cuts = st.lists(st.integers(0, 10_000), max_size=12)
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("format", FORMATS)
@FUZZ
@given(calls=some_calls, cuts=cuts)
def test_calls_written_come_back(parse, cut, format, calls, cuts):
    if format == "xml_tagged":  # values there are text: one that holds the closing tag cannot be written
        calls = [
            (name, {k: v for k, v in given.items() if "</parameter>" not in json.dumps(v)}) for name, given in calls
        ]
    text, found = parse(format, cut(write_calls(format, calls), cuts))
    assert text == ""
    assert [(name, json.loads(arguments)) for name, arguments in found] == calls


bits = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function=", "</function>", "<parameter=", ">"),
        *('{"name": "now"', '"arguments": {}', '"city"', ":", ",", "{", "}", "[", "]", "(", ")", "=", '"', "'", "\\", ";"),
        *("now", "get_weather", "now()", "</parameter>", "\n", " ", "true", "None", "1.5", "-", "Ж", "a"),
        *('{"name": "now", "arguments": {}}', '[TOOL_CALLS] [{"name": "now"}]', "[now()]", "<function=now></function>"),
    ]
)  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
@FUZZ
@given(text=st.lists(bits, max_size=14).map("".join), cuts=cuts)
@example(text='<tool_call>{"name": "now"}</tool_call> </tool_call>', cuts=[])
def test_scraps_of_calls_are_split_the_same_way_however_they_are_cut(parse, cut, format, text, cuts):
    whole = parse(format, [text])
    assert parse(format, cut(text, cuts)) == parse(format, list(text)) == whole
    left, calls = whole
    assert calls or left == text
    assert all(isinstance(json.loads(arguments), dict) for _, arguments in calls)


@pytest.mark.parametrize("format", FORMATS)
@FUZZ
@given(
    calls=some_calls,
    at=st.integers(0, 10_000),
    edit=st.sampled_from(("cut off", "drop", "double", "insert")),
    cuts=cuts,
)
def test_damaged_calls_are_split_the_same_way_however_they_are_cut(parse, cut, format, calls, at, edit, cuts):
    text = write_calls(format, calls)
    at %= len(text)
    edits = {"cut off": text[:at], "drop": text[:at] + text[at + 1 :], "double": text[: at + 1] + text[at:]}
    damaged = edits.get(edit, text[:at] + "<" + text[at:])
    left, found = whole = parse(format, [damaged])
    assert parse(format, cut(damaged, cuts)) == whole
    assert found or left == damaged


@pytest.mark.parametrize("format", FORMATS)
def test_arguments_come_while_they_are_made(parts, format):
    text = write_calls(format, [("get_weather", {"city": "Paris and more", "tags": ["x"]})])
    text = text.replace('"Paris and more"', "Paris and more") if format == "xml_tagged" else text
    given = [delta for part in parts(format, list(text)) for delta in part.tool_calls]
    assert (given[0].id, given[0].name, given[0].index) == ("id0", "get_weather", 0)
    assert all(delta.id is delta.name is None and delta.index == 0 for delta in given[1:])
    before_end = parts(format, list(text[: text.index("and") + 2]))[:-1]
    arguments = "".join(delta.arguments for part in before_end for delta in part.tool_calls)
    assert arguments == '{"city": "Paris an'


@pytest.mark.parametrize("format", FORMATS)
def test_a_call_that_breaks_off_is_withdrawn_and_all_of_it_is_text(parts, parse, format):
    text = write_calls(format, [("get_weather", {"city": "Paris"})])
    text = text[: text.index("Par") + 3]
    deltas = [delta for part in parts(format, list(text)) for delta in part.tool_calls]
    assert deltas[0].name == "get_weather"
    assert [delta.withdrawn for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert parse(format, list(text)) == (text, [])


@pytest.mark.parametrize("format", FORMATS)
def test_without_parallel_calls_the_first_is_the_only_one(parse, cut, format):
    text = write_calls(format, [("now", {}), ("now", {})])
    left, calls = parse(format, list(text), parallel_tool_calls=False)
    assert calls == [NOW]
    assert "now" in left
    assert (left, calls) == parse(format, [text], parallel_tool_calls=False)


@pytest.mark.parametrize("format", FORMATS)
def test_only_a_named_tool_may_be_called(parse, format):
    choice = {"type": "function", "function": {"name": "now"}}
    text = write_calls(format, [("any_of_it", {})])
    assert parse(format, [text], tool_choice=choice) == (text, [])
    assert parse(format, [write_calls(format, [("now", {})])], tool_choice=choice) == ("", [NOW])

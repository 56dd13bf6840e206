"""Rendering is bounded and sandboxed, and errors carry the template's message and line."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from genai_pipeline.errors import TemplateError
from genai_pipeline.preprocess.chat import ChatTemplate, require_template
from genai_pipeline.preprocess.chat_template import ChatProgram, TemplateSyntaxError
from genai_pipeline.preprocess.origin_text import TEMPLATE, OriginText, origin_of
from genai_pipeline.preprocess.render_limits import RenderLimits
from genai_pipeline.preprocess.tokenizer import Tokenizer

SMALL = RenderLimits(steps=2000, characters=10_000, seconds=60)

BOMBS = {
    "range": "{{ range(1000000000) | list }}",
    "nested ranges": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "range in a filter loop": "{% for a in range(5000) if a % 2 %}{% endfor %}",
    "output": "{% for a in range(1000) %}{{ 'x' * 100 }}{% endfor %}",
    "times": "{{ 'x' * 1000000000 }}",
    "times left": "{{ 1000000000 * 'x' }}",
    "list times": "{{ ([0] * 1000000000) | length }}",
    "doubling": "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "doubling tilde": "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubling lists": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "power": "{{ 10 ** 1000000000 }}",
    "big product": "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "recursive macro": "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "wide macro": "{% macro m(d) %}{% if d %}{{ m(d-1) }}{{ m(d-1) }}{% endif %}{% endmacro %}{{ m(40) }}",
    "recursive loop": "{% set x = [1, 2] %}{% for a in x recursive %}{{ loop(x) }}{% endfor %}",
    "center": "{{ 'x' | center(1000000000) }}",
    "center method": "{{ 'x'.center(1000000000) }}",
    "ljust": "{{ 'x'.ljust(1000000000) }}",
    "zfill": "{{ 'x'.zfill(width) }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "format filter": "{{ '%1000000000s' | format('x') }}",
    "format width": "{{ '{:>1000000000}'.format('x') }}",
    "format nested width": "{{ '{:>{w}}'.format('x', w=1000000000) }}",
    "format precision": "{{ '{:.999999999f}'.format(1.5) }}",
    "format repeated": "{{ ('{0}' * 900).format('x' * 5000) }}",
    "indent": "{{ ('\n' * 5000) | indent(1000) }}",
    "indent json": "{{ [[[[1]]]] | tojson(indent=1000000) }}",
    "separators": "{{ [1, 2] | tojson(separators=('x' * 9000, 'y')) }}",
    "json of a repeated text": "{{ (['x' * 9000] * 1000) | tojson }}",
    "print of a repeated text": "{{ ['x' * 9000] * 1000 }}",
    "upper of a repeated text": "{{ (['x' * 9000] * 1000) | upper }}",
    "shared lists": "{% set n = namespace(x=1) %}{% for _ in range(60) %}{% set n.x = [n.x]*2 %}{% endfor %}{{ n.x }}",
    "join": "{{ (['x' * 9000] * 1000) | join }}",
    "join method": "{{ '-'.join(['x' * 9000] * 1000) }}",
    "join separator": "{{ ('x' * 9000).join(['', ''] * 1000) }}",
    "replace": "{{ ('x' * 9000) | replace('x', 'y' * 9000) }}",
    "replace of nothing": "{{ ('x' * 9000).replace('', 'y' * 9000) }}",
    "translate": "{{ ('x' * 9000).translate({120: 'y' * 9000}) }}",
    "expandtabs": "{{ ('\t' * 9000).expandtabs(9000) }}",
    "batch": "{{ [1] | batch(1000000000, 0) | list }}",
    "slice": "{{ [1] | slice(1000000000) | list }}",
    "round": "{{ 1.5 | round(1000000000, 'ceil') }}",
    "sum": "{{ ([[1] * 1000] * 2000) | sum(start=[]) }}",
    "wordwrap": "{{ 'x' | wordwrap(1000000000) }}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_in_a_template_error(name: str) -> None:
    with pytest.raises(TemplateError) as raised:
        ChatProgram(BOMBS[name], limits=SMALL).render({"width": 1000000000})
    assert "chat template" in raised.value.message


def test_a_render_past_its_time_ends() -> None:
    program = ChatProgram("{% for a in range(99999) %}{% endfor %}", limits=RenderLimits(seconds=-1))
    with pytest.raises(TemplateError, match="longer than"):
        program.render({})


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ x.__class__ }}{{ x.__class__.__base__ }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ '{0.__class__.__mro__}'.format_map({'0': 1}) }}{{ [].__class__.__name__ }}",
        "{{ (x | attr('__class__')).__name__ }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ dict.__init__.__globals__.keys() }}",
        "{{ namespace.__init__.__globals__.keys() }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ self.__init__.__globals__.keys() }}",
        "{% set n = namespace(__class__=1) %}",
        "{% set n = namespace() %}{% set n._x = 1 %}",
        "{{ [].append(1) }}",
        "{{ {'a': 1}.update(b=2) }}",
        "{% include 'other' %}",
        "{% import 'os' as os %}{{ os }}",
        "{{ lipsum() }}",
        "{{ missing.attribute.other }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ messages | nothing }}",
    ],
)
def test_internals_are_out_of_reach(source: str) -> None:
    with pytest.raises((TemplateError, TemplateSyntaxError)):
        ChatProgram(source).render({"x": OriginText.of("x", TEMPLATE)})


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("{% if %}", 1),
        ("\n\n{% for a in b %}\n", 3),
        ("a\n{{ b }\nc", 2),
        ("a\nb\n{% nothing %}", 3),
        ("{{ 'x' | nothing }}", 1),
        ("{% for a in b %}\n{% endif %}", 2),
        ("{% generation %}\nx", 2),
    ],
)
def test_syntax_errors_have_the_line(source: str, line: int) -> None:
    with pytest.raises(TemplateSyntaxError) as raised:
        ChatProgram(source)
    assert raised.value.line == line
    assert raised.value.message


def test_too_deep_and_too_long_sources_are_syntax_errors() -> None:
    for source in ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "x" * (1 << 21), "{% for a in b %}" * 30):
        with pytest.raises(TemplateSyntaxError):
            ChatProgram(source)


def test_the_date_is_the_templates(byte_tokenizer: Tokenizer) -> None:
    clock = datetime.datetime(2031, 5, 6, 7, 8, 9)
    text = ChatProgram("{{ strftime_now('%Y-%m-%d %H') }}", clock=lambda: clock).render({})
    assert text == "2031-05-06 07"
    assert set(origin_of(text)) == {TEMPLATE}


def test_no_template_is_a_clear_error() -> None:
    with pytest.raises(TemplateError, match="no chat template") as raised:
        require_template(None, conversation=False)
    assert "--raw" in raised.value.hint
    with pytest.raises(TemplateError, match="no chat template") as raised:
        require_template(None, conversation=True)
    assert "--raw" not in raised.value.hint


def test_one_program_renders_in_many_threads(
    byte_tokenizer: Tokenizer, make_chat: Callable[[str, Tokenizer], ChatTemplate]
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    source = "{% for i in range(200) %}{{ messages[0].content }}{% endfor %}<|im_end|>"
    chat = make_chat(source, byte_tokenizer)

    def ids_of(index: int) -> tuple[int, ...]:
        return chat.encode_chat([{"role": "user", "content": f"The {index} </s>"}])

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ids_of, range(40)))
    assert together == [ids_of(index) for index in range(40)]


def test_a_failing_template_is_named_with_its_line() -> None:
    source = "one\n{% macro item(m) %}\n{{ m.x.y }}\n{% endmacro %}\n{% for m in messages %}{{ item(m) }}{% endfor %}"
    with pytest.raises(TemplateError, match=r"failed at line 3 of a/chat\.jinja: .*undefined|no attribute") as caught:
        ChatProgram(source, name="a/chat.jinja").render({"messages": [{}]})
    assert "raw" in caught.value.hint
    with pytest.raises(TemplateError, match="failed at line 2 of the template: division"):
        ChatProgram("one\n{{ 1 / zero }}").render({"zero": 0})

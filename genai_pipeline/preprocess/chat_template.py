"""Chat templates: a sandboxed Jinja environment that renders what transformers renders. The home of jinja2.

Same settings, same globals, same filters, byte for byte: trimmed blocks, loop controls, ``raise_exception``,
``strftime_now``, ``tojson`` without HTML escapes, the ``generation`` tag. Two things are added. The compiled template
labels every piece of text it writes itself (see ``origin_text``), by a rewrite of the syntax tree. And a render is
bounded: loop rounds and macro calls, time, text size, sizes of numbers, so no template can hang or fill memory.

Longer than most modules because jinja2 is imported nowhere else, but for its syntax tree (see ``template_roles``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property, wraps
from traceback import walk_tb
from types import BuiltinMethodType, MethodType
from typing import Any

import jinja2
import jinja2.filters
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from genai_pipeline.errors import TemplateError
from genai_pipeline.preprocess.origin_text import TEMPLATE, OriginText, joined, tracked
from genai_pipeline.preprocess.render_limits import METER, Meter, RenderLimits, check_counts, check_data
from genai_pipeline.preprocess.template_roles import roles_of

# What a template or its data can make Python raise; every one of them becomes a TemplateError.
_RENDER_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,  # RecursionError among them
    TypeError,
    ValueError,
)
_MAX_SOURCE = 1 << 20
# Filters that take numbers of characters or items, or write their value out as text.
_GUARDED_FILTERS = (
    *("batch", "center", "round", "slice", "truncate", "wordwrap"),
    *("capitalize", "e", "escape", "forceescape", "lower", "pprint", "string", "striptags", "title", "trim", "upper"),
    *("urlencode", "urlize", "wordcount", "xmlattr", "safe", "int", "float"),
)
_CHOOSING = frozenset(("selectattr", "rejectattr", "select", "reject", "list"))
_COUNTED_OPERATORS = frozenset(("+", "*", "**", "%"))


class TemplateSyntaxError(Exception):
    """A template does not parse; ``line`` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class ChatProgram:
    """One compiled template; ``render`` may be called from several threads."""

    def __init__(
        self,
        source: str,
        clock: Callable[[], datetime] = datetime.now,
        limits: RenderLimits | None = None,
        name: str = "the template",
        what: str = "the chat template",
    ) -> None:
        """Compile; in errors ``name`` says what lines are lines of, ``what`` what failed.

        Raises ``TemplateSyntaxError``.
        """
        if len(source) > _MAX_SOURCE:
            raise TemplateSyntaxError(f"a chat template may have at most {_MAX_SOURCE} characters", 1)
        self._limits = limits or RenderLimits()
        self._name = name
        self._what = what
        environment = _Environment(clock)
        try:
            self._template = environment.from_string(source)
            self._tree = environment.parse(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateSyntaxError(error.message or "syntax error", error.lineno) from error
        except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
            raise TemplateSyntaxError(f"the template cannot be compiled: {error}", 1) from error

    def render(self, variables: Mapping[str, Any]) -> OriginText:
        """The prompt text with origins; raises TemplateError with the template's own message where it has one."""
        token = METER.set(Meter(self._limits))
        try:
            return _bounded_join(self._template.generate(**variables))
        except _RENDER_ERRORS as error:
            line = _template_line(error)
            place = "" if line is None else f" at line {line} of {self._name}"
            raise TemplateError(
                f"{self._what} failed{place}: {str(error) or type(error).__name__}",
                hint="mend the template; a raw prompt (run --raw, raw=True) needs none",
            ) from error
        finally:
            METER.reset(token)

    def loops_over_content(self) -> bool:
        """Whether the template walks the parts of a message's content."""
        return any(_names_content(_unfiltered(loop.iter)) for loop in self._tree.find_all(nodes.For))

    def tests_content_type(self) -> bool:
        """Whether the template asks if a content is a string (or not), so that it takes both forms."""
        return any(test.name in ("string", "iterable", "sequence") and _names_content(test.node)
                   for test in self._tree.find_all(nodes.Test))  # fmt: skip

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names that the template looks for among what it is given."""
        return frozenset(meta.find_undeclared_variables(self._tree))

    def roles(self) -> frozenset[str]:
        """Roles that the template knows: the texts it compares a role with."""
        return roles_of(self._tree)


def _template_line(error: BaseException) -> int | None:
    """The line of the template that an error comes from; jinja2 has put the template's frames into the traceback."""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == "<template>"]
    return lines[-1] if lines else None


def _unfiltered(node: nodes.Node) -> nodes.Node:
    """What a list is made of by choosing some of its items."""
    while isinstance(node, nodes.Filter) and node.name in _CHOOSING and node.node is not None:
        node = node.node
    return node


def _names_content(node: nodes.Node) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return isinstance(node, nodes.Name) and node.name == "content"


def _bounded_join(chunks: Iterable[str]) -> OriginText:
    """The chunks joined, given up as soon as they are too long."""
    meter = METER.get()
    kept: list[str] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        meter.size(size)
        kept.append(chunk)
    return joined(kept)


class _Generation(Extension):
    """``{% generation %} ... {% endgeneration %}`` marks what the assistant said; for a prompt it is its body."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Any) -> nodes.Node:
        """Keep the body in a scope of its own, which is what a call block gives it in transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class _Labels(NodeTransformer):
    """Rewrites a template's tree: its own text is labelled, ``~`` keeps origins, loops and macros are counted."""

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802
        return _call_filter("_written", nodes.Const(node.data), node)

    def visit_Const(self, node: nodes.Const) -> nodes.Node:  # noqa: N802
        return _call_filter("_written", node, node) if isinstance(node.value, str) else node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call_filter("_joined", nodes.List(node.nodes, lineno=node.lineno), node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        node.node = self.visit(node.node)
        if not isinstance(node.arg, nodes.Const):
            node.arg = self.visit(node.arg)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        # What is only compared never reaches the output.
        if not isinstance(node.expr, nodes.Const):
            node.expr = self.visit(node.expr)
        node.ops = [op if isinstance(op.expr, nodes.Const) else self.visit(op) for op in node.ops]
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _count(node))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _count(node))
        return node


def _call_filter(name: str, value: nodes.Expr, at: nodes.Node) -> nodes.Node:
    return nodes.Filter(value, name, [], [], None, None).set_lineno(at.lineno)


def _count(at: nodes.Node) -> nodes.Node:
    return nodes.ExprStmt(_call_filter("_counted", nodes.Const(None), at)).set_lineno(at.lineno)


@jinja2.pass_context  # a filter that takes the context is never evaluated at compile time
def _counted(_context: Any, _value: None) -> None:
    METER.get().step()


@jinja2.pass_context
def _written(_context: Any, text: str) -> OriginText:
    return OriginText.of(text, TEMPLATE)


@jinja2.pass_context
def _joined(_context: Any, values: Iterable[Any]) -> str:
    return _bounded_join(str(_finalize(value)) for value in values)


def _finalize(value: Any) -> Any:
    """Numbers are no way to write a control token, so their digits count as the template's."""
    if isinstance(value, (Mapping, list, tuple)):
        check_data(value)
    return OriginText.of(str(value), TEMPLATE) if isinstance(value, (int, float)) or value is None else value


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON as transformers writes it: unlike Jinja's own filter nothing is escaped for HTML."""
    METER.get().json(indent, separators)
    check_data(value)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: Any) -> None:
    raise TemplateError(str(message), hint="this message comes from the chat template itself")


class _TemplateDict:
    """``dict`` as templates see it: a function, not a class with attributes to climb."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """As ``dict.fromkeys``."""
        return dict.fromkeys(*args, **kwargs)


class _TemplateNamespace(Namespace):
    """A namespace that takes no name beginning with an underscore, as in transformers."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # ``self`` may be one of the names, hence no named parameter
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _check_namespace_name(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_namespace_name(name)
        super().__setitem__(name, value)


def _check_namespace_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace attribute cannot begin with an underscore: {name!r}")


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that first checks the numbers and the data it is given."""

    @wraps(function)  # keeps jinja2's marks about context and environment
    def call(*args: Any, **kwargs: Any) -> Any:
        check_counts([*args[1:], *kwargs.values()])
        for value in args[:2]:  # jinja2's own context comes first for some
            if isinstance(value, (Mapping, list, tuple)):
                check_data(value)
        return function(*args, **kwargs)

    return call


def _format_filter(value: Any, *args: Any, **kwargs: Any) -> Any:
    METER.get().format(str(value), kwargs or args)
    return jinja2.filters.do_format(value, *args, **kwargs)


def _indent_filter(value: str, width: Any = 4, first: bool = False, blank: bool = False) -> Any:
    METER.get().indent(str(value), width)
    return jinja2.filters.do_indent(value, width, first, blank)


@jinja2.pass_environment
def _sum_filter(environment: Any, values: Any, attribute: Any = None, start: Any = 0) -> Any:
    METER.get().total(values, start)
    return jinja2.filters.do_sum(environment, values, attribute, start)


@jinja2.pass_eval_context
def _join_filter(context: Any, values: Any, d: Any = "", attribute: Any = None) -> Any:
    return jinja2.filters.do_join(context, values, tracked(str(d)), attribute)


@jinja2.pass_eval_context
def _replace_filter(context: Any, text: Any, old: Any, new: Any, count: Any = None) -> Any:
    return jinja2.filters.do_replace(context, tracked(str(text)), old, new, count)


_FILTERS = {
    "tojson": _tojson,
    "format": _format_filter,
    "indent": _indent_filter,
    "join": _join_filter,
    "replace": _replace_filter,
    "sum": _sum_filter,
    "_written": _written,
    "_joined": _joined,
    "_counted": _counted,
}


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox with transformers' settings, labelled text and bounded operations."""

    concat = staticmethod(_bounded_join)
    intercepted_binops = _COUNTED_OPERATORS

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], finalize=_finalize
        )
        self.filters.update({name: _guarded(self.filters[name]) for name in _GUARDED_FILTERS})
        self.filters.update(_FILTERS)
        del self.globals["lipsum"]
        self.globals.update(
            raise_exception=_raise_exception,
            strftime_now=lambda form: OriginText.of(clock().strftime(str(form)), TEMPLATE),
            dict=_TemplateDict(),
            namespace=_TemplateNamespace,
        )

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """jinja2's hook between parsing and code generation: the place to label the tree."""
        return super()._generate(_Labels().visit(source), *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Check the size of the result before it is made."""
        METER.get().operation(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Check the numbers given to text methods before they are called."""
        method = getattr(called, "__wrapped__", called)  # jinja2 wraps str.format
        owner = method.__self__ if isinstance(method, (BuiltinMethodType, MethodType)) else None
        if isinstance(owner, str):
            METER.get().method(owner, method.__name__, (*args, *kwargs.values()))
            if method.__name__ in ("join", "replace"):
                called = getattr(tracked(owner), method.__name__)
        return super().call(context, called, *args, **kwargs)

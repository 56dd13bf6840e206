"""Parameters of operations and program steps: declared once, checked where they are written, given their values.

Parameters of the types integer, number, boolean, integers and numbers may be written as expressions; strings and
choices are always literal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from genai_pipeline.errors import ExpressionError
from genai_pipeline.metadata.expression_values import plain
from genai_pipeline.metadata.expressions import Expr, evaluate, names, parse
from genai_pipeline.problems import Location, Problems, nearest, one_of

ParameterType = Literal["integer", "number", "boolean", "string", "choice", "integers", "numbers", "strings", "any"]
_LISTS: Final[Mapping[str, str]] = {"integers": "integer", "numbers": "number", "strings": "string"}
LITERAL_TYPES: Final = frozenset({"string", "choice", "strings", "any"})
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
    "choice": (str,),
}


_NOWHERE: Final = Location("")


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()  # stands in place of a default


@dataclass(frozen=True, slots=True)
class CallParameter:
    """One parameter: its type, what it means (with units), its default, and bounds; ``count``: length of a list."""

    type: ParameterType
    doc: str
    default: Any = REQUIRED
    values: tuple[str, ...] = ()  # of a choice
    minimum: float | None = None
    maximum: float | None = None
    count: int | None = None

    @property
    def is_literal(self) -> bool:
        """Whether it is always what is written, never an expression over values."""
        return self.type in LITERAL_TYPES

    def faults(self, value: Any) -> Iterator[str]:
        """What is wrong with a value that is no expression, as what it must be instead."""
        if self.type == "any":
            return
        if self.type in _LISTS:
            if not isinstance(value, Sequence) or isinstance(value, str):
                yield f"a list of {self.type}"
            elif self.count is not None and len(value) != self.count:
                yield f"a list of {self.count} {self.type}"
            else:
                for item in value:
                    yield from self._item_faults(item, _LISTS[self.type])
        else:
            yield from self._item_faults(value, self.type)

    def _item_faults(self, value: Any, kind: str) -> Iterator[str]:
        right_type: bool = isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))
        if not right_type:
            yield f"one of {one_of(self.values)}" if kind == "choice" else f"of type {kind}"
        elif kind == "choice" and value not in self.values:
            yield f"one of {one_of(self.values)}"
        elif self.minimum is not None and value < self.minimum:
            yield f"at least {self.minimum:g}"
        elif self.maximum is not None and value > self.maximum:
            yield f"at most {self.maximum:g}"


Declared = Mapping[str, CallParameter]


def check_call(what: str, given: Mapping[str, Any], declared: Declared, at: Location, problems: Problems) -> None:
    """Report unknown, missing and wrong parameters of ``what`` ("the operation 'pool'"); ``at`` is their mapping."""
    for name, value in given.items():
        place = Location(at.file, at.line, at.column, f"{at.path}.{name}")
        if name not in declared:
            hint = nearest(name, declared) or (f"it takes {one_of(declared)}" if declared else "it takes none")
            problems.error(place, "call.unknown_parameter", f"{what} has no parameter '{name}'", hint)
            continue
        try:
            faults = list(_written_faults(value, declared[name], place))
        except ExpressionError as error:
            faults = [str(error)]
        for fault in faults[:1]:
            problems.error(place, "call.parameter", f"{name} of {what} is {value!r}", f"it must be {fault}")
    for name, parameter in declared.items():
        if parameter.default is REQUIRED and name not in given:
            problems.error(at, "call.missing_parameter", f"{what} needs the parameter '{name}'", parameter.doc)


def call_values(given: Mapping[str, Any], declared: Declared, lookup: Callable[[str], Any]) -> dict[str, Any]:
    """Every parameter's value, defaults and evaluated expressions among them. Raises ExpressionError for wrong ones."""
    found: dict[str, Any] = {}
    for name, parameter in declared.items():
        value = given.get(name, parameter.default)
        if name in given and not parameter.is_literal:
            value = _evaluated(value, lookup)
            for fault in parameter.faults(value):
                raise ExpressionError(f"{name} is {value!r}, and must be {fault}")
        found[name] = value
    return found


def _evaluated(value: Any, lookup: Callable[[str], Any]) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_evaluated(item, lookup) for item in value]
    found = evaluate(_parsed(value), lookup) if isinstance(value, str) else value
    if hasattr(found, "tolist"):  # an array: of one number that number, else a list
        found = plain(found) if found.size == 1 and found.ndim < 2 else found.tolist()
    return list(found) if isinstance(found, tuple) else found


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Expr:
    """An expression; loops evaluate the same ones in every step."""
    return parse(text, _NOWHERE)


def _written_faults(value: Any, parameter: CallParameter, at: Location) -> Iterator[str]:
    """What is wrong with a parameter as it is written; nothing is known of one that reads values."""
    if parameter.is_literal:
        yield from parameter.faults(value)
    elif not _reads_values(value, parameter, at):
        yield from parameter.faults(_evaluated(value, _no_value))


def _no_value(name: str) -> Any:
    raise KeyError(name)


def _reads_values(value: Any, parameter: CallParameter, at: Location) -> bool:
    """Whether a parameter is an expression over values, so that only a run tells whether it is right."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return any(_reads_values(item, parameter, at) for item in value)
    return isinstance(value, str) and bool(names(parse(value, at)))

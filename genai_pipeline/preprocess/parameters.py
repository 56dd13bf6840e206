"""Declared request parameters: defaults, types and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import ParameterSpec
from genai_pipeline.option_values import as_integer, as_number
from genai_pipeline.problems import SHOWN, nearest, one_of, shown

_TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
}
_LEAST, _MOST = -(2**63), 2**63 - 1  # what a tensor of whole numbers holds


def read_parameters(specs: Mapping[str, ParameterSpec], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of all declared parameters as ``parameters.name``. Raises OptionError by name."""
    for name in _mapping(given):
        if name not in specs:
            word = name if isinstance(name, str) else shown(name)
            hint = nearest(word, specs) or (f"parameters are: {one_of(specs)}" if specs else "it declares none")
            raise OptionError(f"this package has no parameter {shown(word)}", param=word[:SHOWN], hint=hint)
    values = {}
    for name, spec in specs.items():
        if name in given:
            values[f"parameters.{name}"] = _check(spec, given[name])
        elif spec.default is not None:
            values[f"parameters.{name}"] = spec.default
        else:
            raise OptionError(f"parameter '{name}' is required", param=name, hint=f"it is of type {spec.type}")
    return values


def together(among_inputs: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Parameters that stand among inputs, and those given by themselves. Raises OptionError for one that is in both."""
    for name in among_inputs.keys() & _mapping(given or {}).keys():
        raise OptionError(
            f"the parameter '{name}' is given twice", param=name, hint="among the inputs, or in parameters"
        )
    return {**among_inputs, **(given or {})}


def _mapping(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise OptionError(f"parameters must map names to values, not {shown(given)}", param="parameters")
    return given


def _check(spec: ParameterSpec, value: Any) -> Any:
    if spec.type == "choice":
        if value not in spec.values:
            raise OptionError(
                f"{spec.name} must be one of {one_of(map(str, spec.values))}, not {shown(value)}",
                param=spec.name,
                hint=nearest(shown(value).strip("'"), map(str, spec.values)),
            )
        return value
    value = _plain(value)
    is_boolean = isinstance(value, bool)
    if is_boolean != (spec.type == "boolean") or not isinstance(value, _TYPES[spec.type]):
        raise OptionError(f"{spec.name} must be of type {spec.type}, not {shown(value)}", param=spec.name)
    if isinstance(value, int | float) and not is_boolean:
        _check_range(spec, value)
    return value


def _plain(value: Any) -> Any:
    """Numbers of other libraries as Python's own."""
    whole = as_integer(value)
    number = as_number(value) if whole is None else whole
    return value if number is None else number


def _check_range(spec: ParameterSpec, value: float) -> None:
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        raise OptionError(f"{spec.name} must fit 64 bits, not be {shown(value)}", param=spec.name)
    if spec.minimum is not None and not value >= spec.minimum:
        raise OptionError(f"{spec.name} must be at least {spec.minimum:g}, not {shown(value)}", param=spec.name)
    if spec.maximum is not None and not value <= spec.maximum:
        raise OptionError(f"{spec.name} must be at most {spec.maximum:g}, not {shown(value)}", param=spec.name)
    if spec.multiple_of is not None and value % spec.multiple_of != 0:
        raise OptionError(
            f"{spec.name} must be a multiple of {spec.multiple_of:g}, not {shown(value)}", param=spec.name
        )

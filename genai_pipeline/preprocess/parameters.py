"""Declared request parameters: defaults, types and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import ParameterSpec
from genai_pipeline.option_values import as_number
from genai_pipeline.problems import nearest, one_of

_TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
}


def read_parameters(specs: Mapping[str, ParameterSpec], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of all declared parameters as ``parameters.name``. Raises OptionError by name."""
    for name in _mapping(given):
        if name not in specs:
            hint = nearest(name, specs) or (f"parameters are: {one_of(specs)}" if specs else "it declares none")
            raise OptionError(f"this package has no parameter '{name}'", param=name, hint=hint)
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
        raise OptionError(f"parameters must map names to values, not {given!r}", param="parameters")
    return given


def _check(spec: ParameterSpec, value: Any) -> Any:
    if spec.type == "choice":
        if value not in spec.values:
            raise OptionError(
                f"{spec.name} must be one of {one_of(map(str, spec.values))}, not {value!r}",
                param=spec.name,
                hint=nearest(str(value), map(str, spec.values)),
            )
        return value
    value = _plain(value)
    is_boolean = isinstance(value, bool)
    if is_boolean != (spec.type == "boolean") or not isinstance(value, _TYPES[spec.type]):
        raise OptionError(f"{spec.name} must be of type {spec.type}, not {value!r}", param=spec.name)
    if isinstance(value, int | float) and not is_boolean:
        _check_range(spec, value)
    return value


def _plain(value: Any) -> Any:
    """Numbers of other libraries as Python's own."""
    number = as_number(value)
    return value if number is None else number


def _check_range(spec: ParameterSpec, value: float) -> None:
    if spec.minimum is not None and not value >= spec.minimum:
        raise OptionError(f"{spec.name} must be at least {spec.minimum:g}, not {value!r}", param=spec.name)
    if spec.maximum is not None and not value <= spec.maximum:
        raise OptionError(f"{spec.name} must be at most {spec.maximum:g}, not {value!r}", param=spec.name)
    if spec.multiple_of is not None and value % spec.multiple_of != 0:
        raise OptionError(f"{spec.name} must be a multiple of {spec.multiple_of:g}, not {value!r}", param=spec.name)

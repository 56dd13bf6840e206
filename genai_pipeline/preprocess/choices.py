"""Values of choice parameters that a file of the package lists: the names in a JSON object, or a JSON list of texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from genai_pipeline.errors import PackageError, PackagePathError
from genai_pipeline.graph.uses import below
from genai_pipeline.metadata.model import PackageSpec, ParameterSpec
from genai_pipeline.metadata.paths import resolve_inside
from genai_pipeline.problems import Problems, nearest, one_of


def with_choices(package: PackageSpec) -> dict[str, ParameterSpec]:
    """The parameters of a package, those with ``from`` with their values. Raises PackageError."""
    return {
        name: spec if spec.values_from is None else replace(spec, values=_names(package, spec))
        for name, spec in package.parameters.items()
    }


def check_choices(package: PackageSpec, problems: Problems) -> None:
    """Report lists of choices that cannot be read, and defaults that are not among them."""
    for name, spec in package.parameters.items():
        if spec.values_from is None:
            continue
        at = below(spec.at, "from")
        try:
            values = _names(package, spec)
        except PackagePathError:
            continue  # reported with the data
        except PackageError as error:
            problems.error(at, "value.choices", error.message, error.hint)
            continue
        if spec.default is not None and spec.default not in values:
            message = f"the default {spec.default!r} of '{name}' is not in {spec.values_from}"
            hint = nearest(str(spec.default), values) or f"it has {one_of(values)}"
            problems.error(below(spec.at, "default"), "value.choices", message, hint)


def _names(package: PackageSpec, spec: ParameterSpec) -> tuple[str, ...]:
    assert spec.values_from is not None
    entry = package.data.get(spec.values_from.removeprefix("data."))
    what = f"the values of '{spec.name}' come from {spec.values_from}"
    if entry is None or len(entry.files) != 1 or not entry.files[0].endswith(".json"):
        raise PackageError(
            f"{what}, which is no JSON file", hint="a JSON object, whose names count, or a list of texts"
        )
    try:
        found: Any = json.loads(resolve_inside(package.root, entry.files[0]).read_text("utf-8"))
        found = found if entry.key is None else found[entry.key]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise PackageError(f"{what}, and {entry.files[0]} cannot be read: {error}") from error
    names = list(found) if isinstance(found, Mapping | list) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise PackageError(f"{what}, and {entry.files[0]} lists no names", hint="an object, or a list of texts")
    return tuple(names)

"""What a request may set about generation: the resolved options, and how they come about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import GenerationSpec, StageSpec
from genai_pipeline.problems import Problems, one_of, shown
from genai_pipeline.sampling.combinations import check_together, check_vocabulary, drop_excluded_defaults
from genai_pipeline.sampling.option_checks import CHECKS, check_option
from genai_pipeline.sampling.options import GenerationOptions

# Options of the answer's form: packages may bound them like those of generation, but others read them.
FORM_OPTIONS: Final = frozenset({"response_format", "regex", "grammar", "choices", "tools"})
_STOPS: Final = ("stop", "stop_token_ids")


def resolve_options(
    request: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> GenerationOptions:
    """Options in effect: the request's own, else the package's defaults that go with them, else the built-in ones.

    Raises OptionError for unknown names, wrong types, values out of range, options that exclude each other or have
    no effect, and for what the package's ``overrides`` do not let a request set.
    """
    chosen: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, given in (("package", defaults or {}), ("request", request)):
        for name, value in given.items():
            chosen[name] = check_option(name, value)
            if source == "request" and overrides is not None:
                _check_override(name, value, chosen[name], overrides)
            sources[name] = source
    _add_stops(chosen, request, defaults or {})
    _check_search_declared(chosen, defaults or {}, overrides or {})
    drop_excluded_defaults(chosen, sources)
    options = GenerationOptions(**chosen, sources=sources)
    check_together(options)
    return options


def _add_stops(chosen: dict[str, Any], request: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """What a request stops at adds to what the package does: its model ends turns with that."""
    for name in _STOPS:
        if name in request and name in defaults:
            chosen[name] = tuple(dict.fromkeys((*check_option(name, defaults[name]), *chosen[name])))


def _check_search_declared(
    chosen: Mapping[str, Any], defaults: Mapping[str, Any], overrides: Mapping[str, Any]
) -> None:
    """Beam search is for packages that speak of it. Raises OptionError."""
    if chosen.get("num_beams", 1) > 1 and "num_beams" not in {*defaults, *overrides}:
        message = f"num_beams is {chosen['num_beams']}, and this package does not declare beam search"
        hint = "leave it out; a package declares it by num_beams under generation.defaults or generation.overrides"
        raise OptionError(message, param="num_beams", hint=hint)


def check_form_override(name: str, value: Any, overrides: Mapping[str, Any] | None) -> None:
    """Refuse an option of the answer's form that the package's ``overrides`` do not let a request set so."""
    if overrides is None:
        return
    if name not in overrides:
        raise _not_to_set(name, overrides)
    rule = overrides[name]
    allowed = rule.get("values") if isinstance(rule, Mapping) else rule
    if isinstance(allowed, list | tuple) and value not in allowed:
        raise OptionError(f"this package allows {name} {one_of(map(str, allowed))}, not {shown(value)}", param=name)


def _not_to_set(name: str, overrides: Mapping[str, Any]) -> OptionError:
    return OptionError(
        f"this package does not let a request set {name}", param=name, hint=f"it may set: {one_of(overrides)}"
    )


def _check_override(name: str, given: Any, value: Any, overrides: Mapping[str, Any]) -> None:
    """Refuse a value, ``given`` as it was written, that the package's rule for the option does not allow."""
    if name not in overrides:
        raise _not_to_set(name, overrides)
    rule = overrides[name]  # true, a list of values, or a range
    if isinstance(rule, Mapping):
        low, high = rule.get("minimum"), rule.get("maximum")
        if value is None or (low is not None and value < low) or (high is not None and value > high):
            bounds = " and ".join(
                f"{word} {bound:g}" for word, bound in (("at least", low), ("at most", high)) if bound is not None
            )
            raise OptionError(f"this package allows {name} {bounds}, not {shown(given)}", param=name)
    values = rule.get("values") if isinstance(rule, Mapping) else rule
    if isinstance(values, list | tuple) and value not in [check_option(name, allowed) for allowed in values]:
        raise OptionError(f"this package allows {name} {one_of(map(str, values))}, not {shown(given)}", param=name)


def check_declared_options(spec: GenerationSpec | None, problems: Problems) -> None:
    """Report generation options of a package that this version cannot honour, and defaults no request could have."""
    if spec is None:
        return
    places = [("defaults", name) for name in spec.defaults] + [("overrides", name) for name in spec.overrides or {}]
    usable = True
    for section, name in places:
        at = replace(spec.at, path=f"{spec.at.path}.{section}.{name}")
        if section == "overrides" and name in FORM_OPTIONS:
            continue
        if name not in CHECKS:
            message = f"the generation option '{name}' is one that this version cannot honour"
            problems.error(at, "capability.missing", message, f"it honours {one_of(CHECKS, 60)}")
            usable = False
        elif section == "defaults":
            try:
                check_option(name, spec.defaults[name])
            except OptionError as error:
                problems.error(at, "value.default", f"the default cannot be used: {error.message}", error.hint)
                usable = False
    if usable:
        _check_defaults_together(spec, problems)


def loop_generations(stages: Iterable[StageSpec]) -> Iterator[GenerationSpec]:
    """The generation settings of single loops, at any depth."""
    for stage in stages:
        if stage.decode is not None and stage.decode.generation is not None:
            yield stage.decode.generation
        yield from loop_generations(stage.body)


def _check_defaults_together(spec: GenerationSpec, problems: Problems) -> None:
    """Defaults that are fine alone must not exclude each other: every silent request would be refused."""
    try:
        resolve_options({}, spec.defaults)
    except OptionError as error:
        at = replace(spec.at, path=f"{spec.at.path}.defaults.{error.param}")
        problems.error(at, "value.default", f"the defaults cannot be used together: {error.message}", error.hint)


__all__ = [
    "FORM_OPTIONS",
    "GenerationOptions",
    "check_declared_options",
    "check_form_override",
    "check_vocabulary",
    "loop_generations",
    "resolve_options",
]

"""What a request may set about generation: the resolved options, and how they come about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import GenerationSpec
from genai_pipeline.option_values import as_integer, boolean, integer, number
from genai_pipeline.problems import Problems, nearest, one_of

MAX_STOPS = 64
MAX_CHOICES = 64
MAX_SEED = 2**63


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """Effective options of one request; ``max_new_tokens`` None means up to the context."""

    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    sources: Mapping[str, str] = field(default_factory=dict)  # option -> "request", "package" or "default"

    @property
    def greedy(self) -> bool:
        """Whether tokens are the argmax of the logits."""
        return self.temperature == 0


def _integer(low: int, high: int | None = None) -> Callable[[str, Any], int]:
    return lambda name, value: integer(name, value, low, high)


def _number(low: float, high: float | None = None, *, above: bool = False) -> Callable[[str, Any], float]:
    return lambda name, value: number(name, value, low, high, above=above)


def _stops(name: str, value: Any) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else value
    if not isinstance(stops, list | tuple) or not all(isinstance(stop, str) and stop for stop in stops):
        raise OptionError(f"{name} must be a non-empty string or a list of them, not {value!r}", param=name)
    if len(stops) > MAX_STOPS:
        raise OptionError(f"{name} takes at most {MAX_STOPS} strings, not {len(stops)}", param=name)
    return tuple(dict.fromkeys(stops))


def _token_ids(name: str, value: Any) -> tuple[int, ...]:
    given = [value] if as_integer(value) is not None else value
    ids = [as_integer(item) for item in given] if isinstance(given, Sequence) and not isinstance(given, str) else [None]
    if any(item is None or item < 0 for item in ids):
        raise OptionError(f"{name} must be a token id or a list of them, not {value!r}", param=name)
    return tuple(dict.fromkeys(item for item in ids if item is not None))


CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "max_new_tokens": _integer(1),
    "min_new_tokens": _integer(0),
    "temperature": _number(0, 100),
    "top_k": _integer(0),
    "top_p": _number(0, 1, above=True),
    "min_p": _number(0, 1),
    "seed": _integer(0, MAX_SEED - 1),
    "stop": _stops,
    "stop_token_ids": _token_ids,
    "ignore_eos": boolean,
    "n": _integer(1, MAX_CHOICES),
}
NULLABLE = frozenset({"max_new_tokens", "seed"})  # None states the default on purpose


def resolve_options(
    request: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> GenerationOptions:
    """Options in effect: the request's own, else the package's defaults, else the built-in ones.

    Raises OptionError for unknown names, wrong types, values out of range, and for what the package's
    ``overrides`` do not let a request set.
    """
    chosen: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, given in (("package", defaults or {}), ("request", request)):
        for name, value in given.items():
            if name not in CHECKS:
                hint = nearest(name, CHECKS) or f"options are: {one_of(CHECKS, limit=40)}"
                raise OptionError(f"unknown option '{name}'", param=name, hint=hint)
            if source == "request" and overrides is not None:
                _check_override(name, value, overrides)
            chosen[name] = None if value is None and name in NULLABLE else CHECKS[name](name, value)
            sources[name] = source
    options = GenerationOptions(**chosen, sources=sources)
    _check_lengths(options)
    return options


def check_vocabulary(options: GenerationOptions, size: int | None) -> None:
    """Refuse end tokens that no model of ``size`` tokens (None: unknown) can choose. Raises OptionError."""
    beyond = [token for token in options.stop_token_ids if size is not None and token >= size]
    if beyond:
        raise OptionError(
            f"stop_token_ids has {beyond[0]}, which is outside of the vocabulary: [0, {size})", param="stop_token_ids"
        )


def _check_lengths(options: GenerationOptions) -> None:
    least, most = options.min_new_tokens, options.max_new_tokens
    if most is not None and least > most:
        name = "min_new_tokens" if "min_new_tokens" in options.sources else "max_new_tokens"
        asked = {key: _whose(options.sources.get(key)) for key in ("min_new_tokens", "max_new_tokens")}
        raise OptionError(
            f"min_new_tokens is {least}{asked['min_new_tokens']}, more than max_new_tokens, "
            f"which is {most}{asked['max_new_tokens']}",
            param=name,
            hint="lower min_new_tokens or raise max_new_tokens",
        )


def _whose(source: str | None) -> str:
    return " (the package's default)" if source == "package" else ""


def _check_override(name: str, value: Any, overrides: Mapping[str, Any]) -> None:
    if name not in overrides:
        raise OptionError(
            f"this package does not let a request set {name}", param=name, hint=f"it may set: {one_of(overrides)}"
        )
    rule = overrides[name]  # true, a list of values, or a range
    if isinstance(rule, Mapping):
        low, high = rule.get("minimum"), rule.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = " and ".join(
                f"{word} {bound:g}" for word, bound in (("at least", low), ("at most", high)) if bound is not None
            )
            raise OptionError(f"this package allows {name} {bounds}, not {value!r}", param=name)
    elif isinstance(rule, list | tuple) and value not in rule:
        raise OptionError(f"this package allows {name} {one_of(map(str, rule))}, not {value!r}", param=name)


def check_declared_options(spec: GenerationSpec | None, problems: Problems) -> None:
    """Report generation options of a package that this version cannot honour, and defaults no request could have."""
    if spec is None:
        return
    places = [("defaults", name) for name in spec.defaults] + [("overrides", name) for name in spec.overrides or {}]
    for section, name in places:
        at = replace(spec.at, path=f"{spec.at.path}.{section}.{name}")
        if name not in CHECKS:
            message = f"the generation option '{name}' is one that this version cannot honour"
            problems.error(at, "capability.missing", message, f"it honours {one_of(CHECKS, 40)}")
        elif section == "defaults":
            try:
                CHECKS[name](name, spec.defaults[name])
            except OptionError as error:
                problems.error(at, "value.default", f"the default cannot be used: {error.message}", error.hint)

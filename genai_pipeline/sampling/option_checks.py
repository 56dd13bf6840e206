"""The check of each option of generation alone: its type and range; what is wrong is refused by name, never clamped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from genai_pipeline.errors import OptionError
from genai_pipeline.option_values import as_integer, as_number, boolean, integer, number
from genai_pipeline.problems import nearest, one_of, shown

MAX_STOPS: Final = 64
MAX_CHOICES: Final = 64
MAX_SEED: Final = 2**63
MAX_TOP_LOGPROBS: Final = 20
MAX_BIAS: Final = 100.0
MAX_BREAKERS: Final = 1024
MAX_BEAMS: Final = 16
MAX_LENGTH_PENALTY: Final = 10.0  # powers of any length are finite
LOGPROBS_OF: Final = ("model", "processed")
MIROSTAT_VERSIONS: Final = (0, 2)

_ID = re.compile(r"[0-9]{1,18}", re.ASCII)

Check = Callable[[str, Any], Any]  # (name, value) -> the value in its own type; raises OptionError


def _integer(low: int, high: int | None = None) -> Check:
    return lambda name, value: integer(name, value, low, high)


def _number(low: float, high: float | None = None, *, above: bool = False) -> Check:
    return lambda name, value: number(name, value, low, high, above=above)


def _stops(name: str, value: Any) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else value
    if not isinstance(stops, list | tuple) or not all(isinstance(stop, str) and stop for stop in stops):
        raise OptionError(f"{name} must be a non-empty string or a list of them, not {shown(value)}", param=name)
    if len(stops) > MAX_STOPS:
        raise OptionError(f"{name} takes at most {MAX_STOPS} strings, not {len(stops)}", param=name)
    _check_unicode(name, stops)
    return tuple(dict.fromkeys(stops))


def _check_unicode(name: str, texts: Iterable[str]) -> None:
    """Refuse half a surrogate pair, which no answer has."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            message = (
                f"{name} has a text that is not valid Unicode at character {error.start}: half of a surrogate pair"
            )
            raise OptionError(message, param=name, hint="send text that was decoded as UTF-8") from error


def _token_list(name: str, value: Any) -> tuple[int, ...]:
    """Ids in the order given, with repetitions."""
    given = [value] if as_integer(value) is not None else value
    ids = [as_integer(item) for item in given] if isinstance(given, Sequence) and not isinstance(given, str) else [None]
    if any(item is None or item < 0 for item in ids):
        raise OptionError(f"{name} must be a token id or a list of them, not {shown(value)}", param=name)
    return tuple(item for item in ids if item is not None)


def _token_ids(name: str, value: Any) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_token_list(name, value)))


def _logit_bias(name: str, value: Any) -> dict[int, float]:
    """Token id -> number; ids may be text, as JSON has no other keys."""
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} must map token ids to numbers, not be {shown(value)}", param=name)
    found: dict[int, float] = {}
    for key, bias in value.items():
        token = int(key) if isinstance(key, str) and _ID.fullmatch(key) else as_integer(key)
        if token is None or token < 0:
            raise OptionError(f"{name} must map token ids to numbers; {shown(key)} is no token id", param=name)
        given = as_number(bias)
        if given is None or not -MAX_BIAS <= given <= MAX_BIAS:
            allowed = f"a number between {-MAX_BIAS:g} and {MAX_BIAS:g}"
            raise OptionError(f"{name} of token {shown(token)} must be {allowed}, not {shown(bias)}", param=name)
        if token in found:
            raise OptionError(f"{name} has token {shown(token)} twice", param=name)
        found[token] = float(given)
    return found


def _breakers(name: str, value: Any) -> tuple[int | str, ...]:
    """Token ids and texts, mixed; a single one needs no list."""
    given = [value] if isinstance(value, str) or as_integer(value) is not None else value
    if not isinstance(given, list | tuple):
        raise OptionError(f"{name} must be a list of texts or token ids, not {shown(value)}", param=name)
    if len(given) > MAX_BREAKERS:
        raise OptionError(f"{name} takes at most {MAX_BREAKERS} texts and ids, not {len(given)}", param=name)
    found = [item if isinstance(item, str) and item else as_integer(item) for item in given]
    if any(item is None or (isinstance(item, int) and item < 0) for item in found):
        raise OptionError(f"{name} must be a list of non-empty texts or token ids, not {shown(value)}", param=name)
    _check_unicode(name, (item for item in given if isinstance(item, str)))
    return tuple(dict.fromkeys(item for item in found if item is not None))


def _mirostat(name: str, value: Any) -> int:
    version = as_integer(value)
    if version not in MIROSTAT_VERSIONS:
        raise OptionError(f"{name} must be 0 (off) or 2 (Mirostat 2.0), not {shown(value)}", param=name)
    return version


def _logprobs_of(name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in LOGPROBS_OF:
        hint = nearest(value, LOGPROBS_OF) if isinstance(value, str) else ""
        raise OptionError(f"{name} must be {' or '.join(LOGPROBS_OF)}, not {shown(value)}", param=name, hint=hint)
    return value


CHECKS: Final[Mapping[str, Check]] = {
    "max_new_tokens": _integer(0),
    "min_new_tokens": _integer(0),
    "temperature": _number(0, 100),
    "top_k": _integer(0),
    "top_p": _number(0, 1, above=True),
    "min_p": _number(0, 1),
    "typical_p": _number(0, 1, above=True),
    "top_a": _number(0, 1),
    "xtc_probability": _number(0, 1),
    "xtc_threshold": _number(0, 0.5),  # of two tokens, one has at most half
    "mirostat": _mirostat,
    "mirostat_tau": _number(0, 100, above=True),
    "mirostat_eta": _number(0, 1, above=True),
    "repetition_penalty": _number(0, 100, above=True),
    "frequency_penalty": _number(-2, 2),
    "presence_penalty": _number(-2, 2),
    "no_repeat_ngram_size": _integer(0),
    "dry_multiplier": _number(0, 100),
    "dry_base": _number(1, 100),
    "dry_allowed_length": _integer(1),
    "dry_sequence_breakers": _breakers,
    "dry_range": _integer(0),
    "logit_bias": _logit_bias,
    "banned_token_ids": _token_ids,
    "forced_token_ids": _token_list,
    "seed": _integer(0, MAX_SEED - 1),
    "stop": _stops,
    "stop_token_ids": _token_ids,
    "ignore_eos": boolean,
    "n": _integer(1, MAX_CHOICES),
    "logprobs": boolean,
    "top_logprobs": _integer(0, MAX_TOP_LOGPROBS),
    "logprobs_of": _logprobs_of,
    "prompt_logprobs": _integer(0, MAX_TOP_LOGPROBS),
    "num_beams": _integer(1, MAX_BEAMS),
    "length_penalty": _number(-MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY),
    "early_stopping": boolean,
    "speculate": boolean,
}
NULLABLE: Final = frozenset({"max_new_tokens", "seed", "prompt_logprobs"})  # None states the default on purpose


def check_option(name: str, value: Any) -> Any:
    """The value of one option in its own type. Raises OptionError for unknown names and values that do not fit."""
    if name not in CHECKS:
        hint = nearest(name, CHECKS) or f"options are: {one_of(CHECKS, limit=60)}"
        raise OptionError(f"unknown option '{name}'", param=name, hint=hint)
    return None if value is None and name in NULLABLE else CHECKS[name](name, value)

"""Options of generation that exclude each other, have no effect alone, or name tokens a model does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from genai_pipeline.errors import OptionError
from genai_pipeline.problems import shown
from genai_pipeline.sampling.options import BUILT_IN, GenerationOptions, changed

# Option -> the option that must be on for it to have an effect.
_SWITCHES: Final[Mapping[str, str]] = {
    "xtc_threshold": "xtc_probability",
    "mirostat_tau": "mirostat",
    "mirostat_eta": "mirostat",
    "dry_base": "dry_multiplier",
    "dry_allowed_length": "dry_multiplier",
    "dry_sequence_breakers": "dry_multiplier",
    "dry_range": "dry_multiplier",
    "top_logprobs": "logprobs",
    "logprobs_of": "logprobs",
    "length_penalty": "num_beams",
    "early_stopping": "num_beams",
}
_FILTERS: Final = ("top_k", "top_p", "min_p", "typical_p", "top_a", "xtc_probability")
_OF_FIXED_TOKENS: Final = ("logprobs", "prompt_logprobs", "stop")
_NOT_BY_BEAMS: Final = (*_FILTERS, "mirostat", *_OF_FIXED_TOKENS)
_TOKEN_OPTIONS: Final = (
    "stop_token_ids",
    "banned_token_ids",
    "forced_token_ids",
    "logit_bias",
    "dry_sequence_breakers",
)


def check_together(options: GenerationOptions) -> None:
    """Refuse what could only be ignored. Raises OptionError naming both options."""
    _check_lengths(options)
    _check_switches(options)
    _check_beams(options)
    _check_mirostat(options)
    _check_tokens(options)


def drop_excluded_defaults(chosen: dict[str, Any], sources: dict[str, str]) -> None:
    """Take out package defaults that what a request sets excludes: filters for Mirostat, and the other way round.

    The same holds for sampling and beam search; a search without any word on the temperature is greedy.
    """

    def asked(name: str) -> bool:
        return sources.get(name) == "request" and chosen[name] != getattr(BUILT_IN, name)

    if asked("num_beams"):
        _drop_defaults(("temperature", *_FILTERS, "mirostat"), chosen, sources)
    elif sources.get("num_beams") == "package":
        sampled = sources.get("temperature") == "request" and chosen["temperature"] != 0
        if sampled or any(map(asked, _NOT_BY_BEAMS)):
            _drop_defaults(("num_beams",), chosen, sources)
    if chosen.get("num_beams", 1) > 1:
        chosen.setdefault("temperature", 0.0)
    if asked("mirostat"):
        _drop_defaults(_FILTERS, chosen, sources)
    elif sources.get("mirostat") == "package":
        greedy = sources.get("temperature") == "request" and chosen["temperature"] == 0
        if greedy or any(map(asked, _FILTERS)):
            _drop_defaults(("mirostat",), chosen, sources)


def _drop_defaults(names: Iterable[str], chosen: dict[str, Any], sources: dict[str, str]) -> None:
    """Take out those of some options that are defaults of the package."""
    for name in names:
        if sources.get(name) == "package":
            del chosen[name], sources[name]


def check_vocabulary(options: GenerationOptions, size: int | None) -> None:
    """Refuse tokens that no model of ``size`` tokens (None: unknown) can choose. Raises OptionError."""
    if size is None:
        return
    for name in _TOKEN_OPTIONS:
        given: Iterable[int | str] = getattr(options, name)
        beyond = [token for token in given if isinstance(token, int) and token >= size]
        if beyond:
            message = f"{name} has {shown(beyond[0])}, which is outside of the vocabulary: [0, {size})"
            raise OptionError(message, param=name)
    if len(options.banned_token_ids) >= size:
        raise OptionError("banned_token_ids has every token of the vocabulary", param="banned_token_ids")


def _check_switches(options: GenerationOptions) -> None:
    """What a request sets has an effect; a package may hold settings ready for requests that switch them on."""
    for name, switch in _SWITCHES.items():
        asked = options.sources.get(name) == "request" and changed(options, name)
        if asked and not changed(options, switch):
            raise OptionError(f"{name} has no effect without {switch}", param=name, hint=f"set {switch} too")


def _check_mirostat(options: GenerationOptions) -> None:
    """Mirostat takes the place of the filters, and needs something to choose from."""
    if not options.mirostat:
        return
    whose = _whose(options, "mirostat")
    for name in _FILTERS:
        if changed(options, name):
            default = getattr(BUILT_IN, name)
            given = f"{getattr(options, name):g}{_whose(options, name)}"
            raise OptionError(
                f"mirostat{whose} takes the place of {name}, which is {given}",
                param=_request_first(options, name, "mirostat"),
                hint=f"set {name} to {default:g}, or mirostat to 0",
            )
    if options.greedy:
        raise OptionError(
            f"mirostat{whose} needs a temperature above 0",
            param=_request_first(options, "temperature", "mirostat"),
            hint="set mirostat to 0 for greedy decoding",
        )


def _check_tokens(options: GenerationOptions) -> None:
    banned = set(options.banned_token_ids)
    for name in ("forced_token_ids", "logit_bias"):
        given: Iterable[int] = getattr(options, name)
        both = next((token for token in given if token in banned), None)
        if both is not None:
            raise OptionError(
                f"{name}{_whose(options, name)} has {both}, which banned_token_ids"
                f"{_whose(options, 'banned_token_ids')} forbids",
                param=_request_first(options, name, "banned_token_ids"),
            )


def _check_beams(options: GenerationOptions) -> None:
    """A search draws nothing, tells no tokens before it ends, and has no more hypotheses than beams."""
    if options.num_beams == 1:
        return
    search = f"num_beams, which is {options.num_beams}{_whose(options, 'num_beams')}"
    excluded = {name: getattr(BUILT_IN, name) for name in _NOT_BY_BEAMS if changed(options, name)}
    if not options.greedy:
        excluded = {"temperature": 0, **excluded}
    for name, off in excluded.items():
        why = "hypotheses change until the search ends" if name in _OF_FIXED_TOKENS else "a beam search draws nothing"
        raise OptionError(
            f"{name}{_whose(options, name)} does not go with {search}: {why}",
            param=_request_first(options, name, "num_beams"),
            hint=f"set {name} to {off!r}, or num_beams to 1",
        )
    if options.n > options.num_beams:
        message = f"n is {options.n}, more than {search}: a search finds no more hypotheses than that"
        raise OptionError(message, param="n", hint="raise num_beams, or ask for fewer")


def _check_lengths(options: GenerationOptions) -> None:
    most = options.max_new_tokens
    if most is None:
        return
    if most == 0 and options.prompt_logprobs is None:
        message, hint = "max_new_tokens is 0, which only scoring makes use of", "ask for at least 1, or prompt_logprobs"
        raise OptionError(message, param="max_new_tokens", hint=hint)
    least = {"min_new_tokens": options.min_new_tokens, "forced_token_ids": len(options.forced_token_ids)}
    for name, count in least.items():
        if count > most:
            has = "is" if name == "min_new_tokens" else "has"
            raise OptionError(
                f"{name} {has} {count}{_whose(options, name)}, more than max_new_tokens, "
                f"which is {most}{_whose(options, 'max_new_tokens')}",
                param=name if name in options.sources else "max_new_tokens",
                hint=f"lower {name} or raise max_new_tokens" if name == "min_new_tokens" else "raise max_new_tokens",
            )


def _whose(options: GenerationOptions, name: str) -> str:
    return " (the package's default)" if options.sources.get(name) == "package" else ""


def _request_first(options: GenerationOptions, *names: str) -> str:
    """The option at fault: the first that the request itself set."""
    return next((name for name in names if options.sources.get(name) == "request"), names[0])

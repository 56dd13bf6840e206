"""The options of a chat's turns: those of the command line, those set since, and the package's; checked when set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.errors import OptionError
from genai_pipeline.problems import nearest, one_of

if TYPE_CHECKING:
    from genai_pipeline.pipeline import Pipeline

_NO_LOGPROBS: Final = "the numbers have no place in a chat; the command 'run' has them with --json"
_REFUSED: Final = {
    "n": "a conversation goes on with one answer",
    "logprobs": _NO_LOGPROBS,
    "top_logprobs": _NO_LOGPROBS,
    "logprobs_of": _NO_LOGPROBS,
    "prompt_logprobs": _NO_LOGPROBS,
    "system": "it has a command of its own, /system",
}
_OTHERS: Final = ("parameters", "timeout", "priority")


class ChatOptions:
    """Options of requests by their names in the API."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """``given``: on the command line."""
        self._given = dict(given)
        self._set: dict[str, Any] = {}

    @property
    def request(self) -> dict[str, Any]:
        """What every turn asks for."""
        return {**self._given, **self._set}

    def set(self, pipe: Pipeline, name: str, value: Any) -> None:
        """Set one for the turns to come. Raises OptionError, and nothing changes, for what the package will not do."""
        _check_name(name)
        check(pipe, {**self.request, name: value})
        self._set[name] = value

    def reset(self, pipe: Pipeline, name: str) -> None:
        """Set it no more, on the command line neither. Raises OptionError where the others need it."""
        _check_name(name)
        check(pipe, {key: value for key, value in self.request.items() if key != name})
        self._set.pop(name, None)
        self._given.pop(name, None)

    def rows(self, pipe: Pipeline) -> Iterator[tuple[str, str, str]]:
        """Name, value as JSON and source of each option in effect."""
        given = self.request
        generation = generation_names()
        effective = pipe.options(**{name: value for name, value in given.items() if name in generation})
        for name in generation:
            yield name, _written(getattr(effective, name)), self._source(name, effective.sources.get(name))
        for name in given.keys() - set(generation):
            yield name, _written(given[name]), self._source(name, "request")

    def _source(self, name: str, source: str | None) -> str:
        if source == "request":
            return "set here" if name in self._set else "command line"
        return "package" if source == "package" else "built in"


def generation_names() -> tuple[str, ...]:
    """The options of generation that a chat has."""
    from genai_pipeline.sampling.options import GenerationOptions

    return tuple(field.name for field in fields(GenerationOptions) if field.name not in {*_REFUSED, "sources"})


def names() -> tuple[str, ...]:
    """Every option that can be set in a chat."""
    from genai_pipeline.constraints.spec import CONSTRAINT_OPTIONS
    from genai_pipeline.preprocess.answer_options import ANSWER_OPTIONS

    return (*generation_names(), *ANSWER_OPTIONS, *CONSTRAINT_OPTIONS, *_OTHERS)


def check(pipe: Pipeline, given: Mapping[str, Any]) -> None:
    """Refuse options that the package's turns cannot have. Raises RequestError, OptionError among them."""
    pipe.tokenize(messages=[{"role": "user", "content": "x"}], **given)


def _check_name(name: str) -> None:
    if name in _REFUSED:
        raise OptionError(f"{name} cannot be set in a chat: {_REFUSED[name]}", param=name)
    if name not in names():
        hint = nearest(name, names()) or f"options are: {one_of(names(), limit=60)}"
        raise OptionError(f"unknown option '{name}'", param=name, hint=hint)


def _written(value: Any) -> str:
    """As it would be typed, in one line."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)

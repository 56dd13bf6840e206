"""Options of commands in groups: the API's names with typer's annotations, each group in a panel of the help.

A command that takes groups receives what was given as keyword arguments by those names; None is not given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import typer

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Options that belong together; ``title`` heads their panel in the help."""

    title: str
    options: Mapping[str, Any]

    def given(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the values that are of this group and were given."""
        return {name: value for name, value in given(values).items() if name in self.options}

    def only(self, *names: str) -> OptionGroup:
        """The same group with these options alone."""
        return replace(self, options={name: self.options[name] for name in names})

    def parameters(self) -> list[inspect.Parameter]:
        """The options as parameters of a function, as typer reads them."""
        found = []
        for name, annotation in self.options.items():
            settings = copy(annotation.__metadata__[0])  # groups with other titles may share the option
            settings.rich_help_panel = self.title
            kind: Any = annotation.__origin__
            titled = Annotated[kind, settings]
            found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=titled))
        return found


def option(kind: Any, *flags: str, **settings: Any) -> Any:
    """An option of a type, None when it is not given; ``flags`` where the name alone does not say them."""
    if kind == list[str]:
        settings = {"metavar": "TEXT", **settings}
    return Annotated[kind | None, typer.Option(*flags, **settings)]


def switch(flag: str, says: str) -> Any:
    """A flag that turns something on."""
    return option(bool, flag, help=says)


def off_switch(flag: str, says: str) -> Any:
    """A flag that turns something off: False when it is given."""
    return option(bool, flag, help=says, callback=_inverted)


def _inverted(value: bool | None) -> bool | None:
    return None if value is None else not value


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given: one left out is not a value."""
    return {name: value for name, value in values.items() if value is not None and value not in ([], ())}


def takes(*groups: OptionGroup) -> Callable[[Command], Command]:
    """Let a function with ``**options`` take the options of these groups."""

    def wrap(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [parameter for parameter in signature.parameters.values() if parameter.kind != parameter.VAR_KEYWORD]
        parameters = [*own, *(parameter for group in groups for parameter in group.parameters())]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return wrap

"""Checks of a component's runtime settings, which the runtime itself takes without a word: providers, their options,
configuration entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.build_values import listed, named
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.provider_names import label_of, parse_provider
from genai_pipeline.metadata.schema_faults import shown
from genai_pipeline.metadata.session_keys import (
    CPU_OPTIONS,
    DEFAULT_PROVIDER,
    FLAGS,
    KEYS,
    PROVIDERS,
    RESERVED,
)
from genai_pipeline.problems import Problems, nearest, one_of

_ON_OFF: Final = ("0", "1")
_ON_OFF_HINT: Final = 'write true or false, or "1" or "0"'
_PROVIDER_ENTRIES: Final = "ep."  # providers define entries of their own below it


def check_sessions(root: Node, problems: Problems) -> None:
    """Record every runtime setting of a component that would be ignored or misread."""
    for _, component in named(root.get("components")):
        session = component.get("session")
        variants = [provider for one in listed(component.get("variants")) if (provider := one.get("provider"))]
        _check_known(variants, problems)
        if session is not None:
            _check_providers(session, [label_of(str(node.value)) for node in variants], problems)
            for key, value in named(session.get("config")):
                _check_entry(key, value, problems)


def _check_known(providers: Sequence[Node], problems: Problems) -> None:
    for node in providers:
        try:
            spec = parse_provider(str(node.value))
        except OptionError as error:
            problems.error(node.at, "runtime.provider", error.message, error.hint)
            continue
        if spec.options:
            hint = "put options below provider_options"
            problems.error(node.at, "runtime.provider", f"{shown(node.value)} has options in the name", hint)
        elif spec.is_library:
            message = f"{shown(node.value)} is a library's path, and code that a package names is not loaded"
            hint = "name the distribution that brings it: plugin:DISTRIBUTION; callers may name a library"
            problems.error(node.at, "runtime.provider", message, hint)
        elif not spec.plugin and label_of(spec.name) not in PROVIDERS:
            hint = nearest(str(node.value), (*PROVIDERS, *PROVIDERS.values())) or f"known are: {one_of(PROVIDERS, 20)}"
            message = f"the provider {shown(node.value)} is not known; it is passed over where it is not there"
            problems.warning(node.at, "runtime.provider", message, hint)


def _check_providers(session: Node, variants: Sequence[str], problems: Problems) -> None:
    """The providers of a session and their options; ``variants``: providers that a variant is for."""
    providers = listed(session.get("providers"))
    _check_known(providers, problems)
    listed_here = [label_of(str(node.value)) for node in providers]
    used = listed_here or [*dict.fromkeys((*variants, DEFAULT_PROVIDER))]
    for name, options in named(session.get("provider_options")):
        if label_of(name) not in used:
            message = f"options for {shown(name)}, which is not one of the component's providers: {', '.join(used)}"
            hint = nearest(name, used) or f"list it: providers: [{', '.join((name, *used))}]"
            problems.error(options.named_at, "runtime.provider_options", message, hint)
        elif label_of(name) == DEFAULT_PROVIDER:
            _check_cpu_options(options, problems)


def _check_cpu_options(options: Node, problems: Problems) -> None:
    for key, value in named(options):
        if key not in CPU_OPTIONS:
            hint = nearest(key, CPU_OPTIONS) or f"it takes {one_of(CPU_OPTIONS)}"
            message = f"the CPU provider has no option {shown(key)}"
            problems.error(value.named_at, "runtime.provider_options", message, hint)
        elif _text(value) not in _ON_OFF:
            message = f"{key} is on or off, not {shown(value.plain())}"
            problems.error(value.at, "runtime.provider_options", message, _ON_OFF_HINT)


def _check_entry(key: str, value: Node, problems: Problems) -> None:
    """One configuration entry."""
    if key in RESERVED:
        problems.error(value.named_at, "runtime.reserved", f"{shown(key)} cannot be set: {RESERVED[key]}", "remove it")
    elif key in FLAGS and _text(value) not in _ON_OFF:
        message = f"{key} is on or off, not {shown(value.plain())}"
        problems.error(value.at, "runtime.config", message, _ON_OFF_HINT)
    elif key not in KEYS:
        hint = nearest(key, KEYS)
        if hint or not key.startswith(_PROVIDER_ENTRIES):
            message = f"{shown(key)} is no configuration entry of the runtime that is known here"
            problems.warning(value.named_at, "runtime.config_key", message, hint or "the runtime ignores what it lacks")


def _text(value: Node) -> str:
    """The value as the runtime gets it."""
    plain = value.plain()
    return str(int(plain)) if isinstance(plain, bool) else str(plain)

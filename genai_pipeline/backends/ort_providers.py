"""The execution providers of one ONNX Runtime session: built-in ones and plugins, in the order they were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from genai_pipeline.backends.ort_plugins import Plugin, load_plugin
from genai_pipeline.backends.protocol import LoadRequest
from genai_pipeline.backends.provider_names import parse_provider
from genai_pipeline.backends.providers import choose, long_name, short_name

_CPU = "CPUExecutionProvider"


@dataclass(frozen=True, slots=True)
class SessionProviders:
    """Providers as the runtime names them, the first choice first, and what each is loaded with.

    ``notes``: what was asked for and is not there.
    """

    names: tuple[str, ...]
    options: Mapping[str, Mapping[str, str]]
    plugins: Mapping[str, Plugin]
    notes: tuple[str, ...] = ()


def choose_providers(runtime: Any, request: LoadRequest) -> SessionProviders:
    """What a request asks for and this machine has. Raises ProviderUnavailableError, OptionError."""
    options = {long_name(name): dict(settings) for name, settings in request.provider_options}
    plugins: dict[str, Plugin] = {}
    names: list[str] = []
    for spec in map(parse_provider, request.providers):
        name = long_name(spec.name)
        if spec.plugin:
            plugin = load_plugin(runtime, spec.name)
            name, plugins[plugin.name] = plugin.name, plugin
        names.append(name)
        options[name] = {**options.get(name, {}), **dict(spec.options)}
    available = dict.fromkeys([*runtime.get_available_providers(), *plugins])
    choice = choose(names, tuple(available), required=request.providers_required)
    return SessionProviders(choice.names, options, plugins, choice.notes)


def attach_providers(session_options: Any, chosen: SessionProviders) -> list[tuple[str, dict[str, str]]] | None:
    """Put providers on the options of a session, or give the list that a session is created with.

    A list would make the runtime forget the devices of plugins, so where there is one, all go on the options.
    """
    pairs = [(name, dict(chosen.options.get(name, {}))) for name in chosen.names]
    if not any(name in chosen.plugins for name, _ in pairs):
        return pairs
    for name, options in pairs:
        if name in chosen.plugins:
            session_options.add_provider_for_devices(list(chosen.plugins[name].devices), options)
        elif name != _CPU:  # which takes what the others leave
            session_options.add_provider(name, options)
    return None


def placement_notes(component: str, chosen: SessionProviders, placement: Mapping[str, int]) -> Iterator[str]:
    """What is worth saying of where nodes run: providers that got none, and nodes that fell to the CPU."""
    for name in chosen.names:
        if name != _CPU and short_name(name) not in placement:
            yield f"provider '{short_name(name)}' was loaded but runs no node of '{component}'"
    on_cpu = placement.get("cpu", 0)
    if on_cpu and chosen.names[0] != _CPU:
        yield f"{on_cpu} of the {sum(placement.values())} nodes of '{component}' run on the cpu"

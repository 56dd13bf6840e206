"""The execution providers of one ONNX Runtime session: built-in ones and plugins, in the order they were asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from genai_pipeline.backends.ort_plugins import Plugin, installed_plugins, load_plugin, plugin_names
from genai_pipeline.backends.placement import CPU, Shortfall
from genai_pipeline.backends.protocol import LoadRequest
from genai_pipeline.backends.providers import choose, find_built_in, long_name, short_name
from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.provider_names import PLUGIN, ProviderSpec, label_of, parse_provider
from genai_pipeline.metadata.session_keys import CPU_OPTIONS, DEFAULT_PROVIDER
from genai_pipeline.problems import nearest, one_of


@dataclass(frozen=True, slots=True)
class SessionProviders:
    """Providers by short name, the first choice first, each with its options; some are plugins.

    ``missing``: what was asked for and is not there, and why.
    """

    options: Mapping[str, Mapping[str, str]]
    plugins: Mapping[str, Plugin] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The providers, the first choice first."""
        return tuple(self.options)


def choose_providers(runtime: Any, request: LoadRequest) -> SessionProviders:
    """What a request asks for and this machine has. Raises ProviderUnavailableError, OptionError."""
    plugins: dict[str, Plugin] = {}
    asked = request.providers or (DEFAULT_PROVIDER,)
    choice = choose(asked, lambda entry: find_provider(runtime, entry, plugins), required=request.providers_required)
    declared = {label_of(name): dict(settings) for name, settings in request.provider_options}
    options: dict[str, dict[str, str]] = {}
    for entry, name in choice.found.items():
        spec = parse_provider(entry)
        _check_options(name, spec)
        options.setdefault(name, {}).update({**declared.get(label_of(entry), {}), **dict(spec.options)})
    return SessionProviders(options, plugins, choice.missing)


def find_provider(runtime: Any, asked: str, plugins: dict[str, Plugin]) -> str:
    """The short name of a provider; one of a plugin is registered and added to ``plugins``.

    Raises ProviderUnavailableError, OptionError.
    """
    spec = parse_provider(asked)
    if not spec.plugin:
        return find_built_in(
            asked, built_in(runtime), others=lambda: (f"{PLUGIN}{name}" for name in installed_plugins())
        )
    plugin = load_plugin(runtime, spec)
    plugins[short_name(plugin.name)] = plugin
    return short_name(plugin.name)


def built_in(runtime: Any) -> tuple[str, ...]:
    """Short names of the providers that this build of the runtime has, the most able first."""
    plugins = plugin_names(runtime)  # which the runtime lists too, once somebody has registered them
    return tuple(short_name(name) for name in runtime.get_available_providers() if name not in plugins)


def attach_providers(session_options: Any, chosen: SessionProviders) -> list[tuple[str, dict[str, str]]] | None:
    """Put providers on the options of a session, or give the list that a session is created with.

    A list would make the runtime forget the devices of plugins, so where there is one, all go on the options.
    """
    if not any(name in chosen.plugins for name in chosen.names):
        return [(long_name(name), dict(options)) for name, options in chosen.options.items()]
    add_providers(session_options, chosen)
    return None


def add_providers(session_options: Any, chosen: SessionProviders) -> None:
    """Put providers on the options of a session."""
    for name, options in chosen.options.items():
        if name in chosen.plugins:
            session_options.add_provider_for_devices(list(chosen.plugins[name].devices), dict(options))
        elif name != CPU:  # which takes what the others leave
            session_options.add_provider(long_name(name), dict(options))


def placed_nodes(session: Any) -> tuple[dict[str, int], dict[str, int]]:
    """Nodes by provider, in the session's order, and those on the CPU by operator, the most frequent first.

    A graph without nodes runs nowhere but on the CPU.
    """
    nodes: Counter[str] = Counter()
    on_cpu: Counter[str] = Counter()
    for subgraph in session.get_provider_graph_assignment_info():
        name = short_name(subgraph.ep_name)
        nodes[name] += len(subgraph.get_nodes())
        if name == CPU:
            on_cpu.update(node.op_type for node in subgraph.get_nodes())
    there = {name: nodes[name] for name in map(short_name, session.get_providers()) if name in nodes}
    return there or {CPU: 0}, dict(on_cpu.most_common())


def shortfall(chosen: SessionProviders, placement: Mapping[str, int], on_cpu: Mapping[str, int]) -> Shortfall:
    """What was not met of the providers that were asked for."""
    unused = tuple(name for name in chosen.names if name != CPU and name not in placement)
    return Shortfall(chosen.missing, unused, on_cpu if chosen.names[0] != CPU else {})


def _check_options(name: str, spec: ProviderSpec) -> None:
    """Refuse options that the CPU provider would ignore; others refuse theirs themselves. Raises OptionError."""
    unknown = [key for key, _ in spec.options if name == CPU and key not in CPU_OPTIONS]
    if unknown:
        hint = nearest(unknown[0], CPU_OPTIONS) or f"it takes {one_of(CPU_OPTIONS)}"
        raise OptionError(f"the provider cpu has no option '{unknown[0]}'", param="providers", hint=hint)

"""Which of a component's alternative graphs is used: the first that what runs here can run, and why.

The order of providers decides, then the order of the file: the same machine, options and package give the same choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from genai_pipeline.metadata.model import ComponentSpec, PackageSpec, VariantChoice, VariantSpec
from genai_pipeline.metadata.provider_names import AskedProviders, label_of
from genai_pipeline.problems import Problems, one_of


@dataclass(frozen=True, slots=True)
class Found:
    """Whether a provider is there: its short name or None, and a clause that says so."""

    name: str | None
    said: str


class Offered(Protocol):
    """What a backend can run graphs on."""

    @property
    def names(self) -> tuple[str, ...]:
        """Short names of its own providers."""

    @property
    def default(self) -> str:
        """The provider of graphs for which none is asked."""

    def find(self, asked: str) -> Found:
        """Whether a provider is there, by what names it, with or without options."""


def choose_variants(
    spec: PackageSpec,
    offered: Offered,
    problems: Problems,
    *,
    asked: AskedProviders | None = None,
    precision: str | None = None,
) -> PackageSpec:
    """The package with one graph for each component that has variants; a choice that was made before stays.

    ``offered`` is asked only where a component has variants. ``asked`` are the providers of the load option,
    ``precision`` the one that is preferred. A component none of whose variants can run gets its first one, for the
    checks, and a warning.
    """
    components = dict(spec.components)
    undecided = {name: one for name, one in components.items() if one.variants and one.chosen is None}
    for name, component in undecided.items():
        chosen = choose_variant(component, offered, () if asked is None else asked.of(name), precision)
        components[name] = replace(component, model=chosen.variant.model, chosen=chosen)
        if not chosen.runs:
            message = f"no variant of the component '{name}' runs here: {chosen.reason}"
            hint = f"its first variant was checked; this runtime has {one_of(offered.names)}"
            problems.warning(component.at, "variant.none_runs", message, hint)
    return replace(spec, components=components) if undecided else spec


def choose_variant(
    component: ComponentSpec, offered: Offered, asked: Sequence[str], precision: str | None
) -> VariantChoice:
    """The variant of one component; ``asked``: providers of the load option, the first choice first."""
    variants = _preferred(component.variants, precision)
    order, whose = _order(component, variants, asked, offered.default)
    reasons = list(_why_precision(component.variants, variants, precision))
    passed: list[str] = []
    for place, entry in enumerate(order):
        found = offered.find(entry)
        label = label_of(entry)
        fitting = [one for one in variants if one.provider is None or _is(one.provider, label, found)]
        own = [one for one in fitting if one.provider is not None]
        if found.name is None:
            passed.append(found.said)
        elif not fitting:
            passed.append(f"{label} has no variant")
        else:
            variant = (own or fitting)[0]
            reasons += [*passed, _why(label, found.said, whose, variant, own or fitting)]
            providers = order[place:] if whose else tuple(dict.fromkeys((entry, offered.default)))
            return VariantChoice(variant, "; ".join(reasons), providers, passed_over=tuple(passed) if whose else ())
    return VariantChoice(variants[0], "; ".join([*reasons, *passed]), order, runs=False)


def variant_precisions(spec: PackageSpec) -> tuple[str, ...]:
    """Every precision that a variant of the package has."""
    found = (one.precision for component in spec.components.values() for one in component.variants)
    return tuple(dict.fromkeys(precision for precision in found if precision is not None))


def _preferred(variants: Sequence[VariantSpec], precision: str | None) -> Sequence[VariantSpec]:
    return [one for one in variants if one.precision == precision and precision is not None] or variants


def _why_precision(
    variants: Sequence[VariantSpec], left: Sequence[VariantSpec], precision: str | None
) -> Iterator[str]:
    if precision is not None and left is variants:
        yield f"no variant has the precision {precision}"
    elif precision is not None:
        yield f"{precision} was asked for"


def _order(
    component: ComponentSpec, variants: Sequence[VariantSpec], asked: Sequence[str], default: str
) -> tuple[tuple[str, ...], str]:
    """Providers, the first choice first, and in words who says so; no words: nobody but the variants themselves."""
    declared = component.session.providers if component.session is not None else ()
    if asked or declared:
        return tuple(asked or declared), "asked for" if asked else "listed by the component"
    named = [label_of(one.provider) for one in variants if one.provider is not None]
    return tuple(dict.fromkeys((*named, default))), ""


def _is(provider: str, label: str, found: Found) -> bool:
    """Whether a variant's provider is the one that was found: called the same, or by the name that a plugin has."""
    return label_of(provider) in (label, found.name)


def _why(label: str, said: str, whose: str, variant: VariantSpec, fitting: Sequence[VariantSpec]) -> str:
    said += f" and {whose}" if whose else ""
    any_provider = " for any provider" if variant.provider is None else ""
    first = f", the first of {len(fitting)} variants{any_provider or f' for {label}'}" if len(fitting) > 1 else ""
    return f"{said}{first}"

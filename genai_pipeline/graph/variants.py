"""Which of a component's alternative graphs is used: the first that what runs here can run, and why.

The order of providers decides, then the order of the file: the same machine, options and package give the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from genai_pipeline.metadata.model import ComponentSpec, PackageSpec, VariantChoice, VariantSpec
from genai_pipeline.metadata.session_keys import DEFAULT_PROVIDER, short_provider
from genai_pipeline.problems import Problems, one_of


def choose_variants(
    spec: PackageSpec,
    available: Callable[[], Sequence[str]],
    problems: Problems,
    *,
    asked: Sequence[str] | None = None,
    precision: str | None = None,
) -> PackageSpec:
    """The package with one graph for each component that has variants; a choice that was made before stays.

    ``available`` gives the providers of the runtime, and is asked only where a component has variants. ``asked`` are
    the providers of the load option, ``precision`` the one that is preferred. A component none of whose variants can
    run gets its first one, for the checks, and a warning.
    """
    components = dict(spec.components)
    undecided = {name: one for name, one in components.items() if one.variants and one.chosen is None}
    if not undecided:
        return spec
    there = tuple(map(short_provider, available()))
    for name, component in undecided.items():
        chosen = choose_variant(component, there, asked, precision)
        components[name] = replace(component, model=chosen.variant.model, chosen=chosen)
        if not chosen.runs:
            message = f"no variant of the component '{name}' runs here: {chosen.reason}"
            hint = f"its first variant was checked; this runtime has {one_of(there)}"
            problems.warning(component.at, "variant.none_runs", message, hint)
    return replace(spec, components=components)


def choose_variant(
    component: ComponentSpec, there: Sequence[str], asked: Sequence[str] | None, precision: str | None
) -> VariantChoice:
    """The variant of one component, given the short names of the providers that are ``there``."""
    variants = _preferred(component.variants, precision)
    order, whose = _order(component, variants, asked)
    reasons = list(_why_precision(component.variants, variants, precision))
    for place, provider in enumerate(order):
        fitting = [one for one in variants if _provider(one) in (provider, None)]
        own = [one for one in fitting if _provider(one) == provider]
        if provider not in there:
            reasons.append(f"{provider} is not available here")
        elif not fitting:
            reasons.append(f"{provider} has no variant")
        else:
            variant = (own or fitting)[0]
            reasons.append(_why(provider, whose, variant, own or fitting))
            providers = order[place:] if whose else tuple(dict.fromkeys((provider, DEFAULT_PROVIDER)))
            return VariantChoice(variant, "; ".join(reasons), providers)
    return VariantChoice(variants[0], "; ".join(reasons), order, runs=False)


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
    component: ComponentSpec, variants: Sequence[VariantSpec], asked: Sequence[str] | None
) -> tuple[tuple[str, ...], str]:
    """Providers, the first choice first, and in words who says so; no words: nobody but the variants themselves."""
    declared = component.session.providers if component.session is not None else ()
    if asked or declared:
        names = asked or declared
        return tuple(
            dict.fromkeys(short_provider(name.partition("|")[0]) for name in names)
        ), "asked for" if asked else "listed by the component"
    named = [provider for one in variants if (provider := _provider(one)) is not None]
    return tuple(dict.fromkeys((*named, DEFAULT_PROVIDER))), ""


def _provider(variant: VariantSpec) -> str | None:
    return None if variant.provider is None else short_provider(variant.provider)


def _why(provider: str, whose: str, variant: VariantSpec, fitting: Sequence[VariantSpec]) -> str:
    said = f"{provider} is available here" + (f" and {whose}" if whose else "")
    any_provider = " for any provider" if variant.provider is None else ""
    first = f", the first of {len(fitting)} variants{any_provider or f' for {provider}'}" if len(fitting) > 1 else ""
    return f"{said}{first}"

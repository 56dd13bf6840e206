"""Components of other packages: put in place with everything that their own package declares of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from genai_pipeline.errors import PackageError
from genai_pipeline.graph.uses import below
from genai_pipeline.metadata.load import METADATA_FILE, load_package
from genai_pipeline.metadata.model import ComponentSpec, KvSpec, PackageSpec
from genai_pipeline.metadata.paths import resolve_inside
from genai_pipeline.problems import Problems, nearest, one_of

LENDERS: Final = "lenders"  # a package may carry those it borrows from, each in lenders/NAME
Lend = Callable[[str], Path]  # name of a package -> its folder; raises PackageError when it cannot be had


def borrow(spec: PackageSpec, lend: Lend, problems: Problems, borrowers: tuple[str, ...] = ()) -> PackageSpec:
    """The package with each borrowed component as its own package declares it, files and states included.

    What cannot be borrowed is reported and left as it is. ``borrowers``: the packages for which this one is read.
    """
    chain = (*borrowers, spec.name)
    components = {}
    for name, component in spec.components.items():
        found = component if component.package is None else _borrowed(component, spec, lend, problems, chain)
        components[name] = component if found is None else found
    return replace(spec, components=components)


def _borrowed(
    component: ComponentSpec, spec: PackageSpec, lend: Lend, problems: Problems, chain: tuple[str, ...]
) -> ComponentSpec | None:
    package, name = component.package, component.component
    assert package is not None
    assert name is not None
    lender = _lender(spec, component, lend, problems, chain)
    if lender is None:
        return None
    theirs = lender.components.get(name)
    if theirs is None:
        hint = nearest(name, lender.components) or f"its components are {one_of(lender.components)}"
        message = f"the package '{package}' has no component '{name}'"
        problems.error(below(component.at, "component"), "reference.component", message, hint)
        return None
    return replace(
        theirs,
        at=component.at,
        name=component.name,
        package=package,
        component=name,
        root=theirs.root or lender.root,
        session=component.session or theirs.session,
        kv=tuple(_state(kv, component, spec, problems) for kv in theirs.kv),
    )


def _lender(
    spec: PackageSpec, component: ComponentSpec, lend: Lend, problems: Problems, chain: tuple[str, ...]
) -> PackageSpec | None:
    """The package that lends, its own borrowed components in place; None when that was reported."""
    at, package = below(component.at, "package"), component.package
    assert package is not None
    if package in chain:
        message = f"packages borrow from each other in a circle: {', '.join((*chain, package))}"
        problems.error(at, "reference.package_circle", message, "name the package that has the files")
        return None
    try:
        lender, found = load_package(_carried(spec, package) or lend(package))
    except PackageError as error:
        message = f"the package '{package}' cannot be borrowed from: {error.message}"
        problems.error(at, "reference.package", message, error.hint)
        return None
    faults = [problem for problem in found if problem.severity == "error"]
    if lender is None or faults:
        message = f"the package '{package}' has problems; first: {faults[0].message}"
        problems.error(at, "reference.package", message, f"genai-pipeline validate {package}")
        return None
    return borrow(lender, lend, problems, chain)


def _carried(spec: PackageSpec, package: str) -> Path | None:
    """The folder of a lender that the package carries; it must lie inside. Raises PackagePathError."""
    relative = f"{LENDERS}/{package}"
    if not os.path.lexists(spec.root / relative / METADATA_FILE):
        return None
    return resolve_inside(spec.root, f"{relative}/{METADATA_FILE}").parent


def _state(kv: KvSpec, component: ComponentSpec, spec: PackageSpec, problems: Problems) -> KvSpec:
    """A state entry of a borrowed component; another component that it takes its state from is borrowed too."""
    if kv.source is None:
        return replace(kv, at=component.at)
    source, dot, part = kv.source.partition(".")
    name = _borrowed_as(source, component.package, spec.components)
    if name is None:
        message = f"'{component.name}' takes its state from the component '{source}' of '{component.package}'"
        hint = f"add a component {{package: {component.package}, component: {source}}}"
        problems.error(component.at, "reference.component", message, hint)
    return replace(kv, at=component.at, source=f"{name or source}{dot}{part}")


def _borrowed_as(source: str, package: str | None, components: Mapping[str, ComponentSpec]) -> str | None:
    named = (name for name, other in components.items() if (other.package, other.component) == (package, source))
    return next(named, None)

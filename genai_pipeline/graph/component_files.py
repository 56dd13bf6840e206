"""Reads what the ONNX files of a package's components say, and reports those that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from genai_pipeline.errors import GraphFileError
from genai_pipeline.graph.external_data import check_external_data
from genai_pipeline.graph.onnx_file import read_signature
from genai_pipeline.graph.signature import GraphSignature, joined
from genai_pipeline.graph.uses import below
from genai_pipeline.metadata.model import ComponentSpec, PackageSpec
from genai_pipeline.problems import Location, Problems


@dataclass(frozen=True, slots=True)
class ComponentFiles:
    """The signatures of one component: of its first graph, and of the one for later runs when it has two."""

    first: GraphSignature
    later: GraphSignature | None = None

    @property
    def all(self) -> tuple[GraphSignature, ...]:
        """All signatures, the first first."""
        return (self.first,) if self.later is None else (self.first, self.later)

    @property
    def joined(self) -> GraphSignature:
        """The ports of all as one set."""
        return self.first if self.later is None else joined(self.first, self.later)


def read_components(spec: PackageSpec, refused: frozenset[str], problems: Problems) -> dict[str, ComponentFiles]:
    """The files of every component; one that cannot be read is reported and left out.

    ``refused`` has the YAML paths of files that were reported before and are not to be opened.
    """
    found = {}
    for name, component in spec.components.items():
        models = list(_models(component))
        if any(at.path in refused for _, at in models):
            continue
        root = component.root or spec.root
        signatures = [_read(root, file, at, problems) for file, at in models]
        if signatures and signatures[0] is not None and all(signatures):
            found[name] = ComponentFiles(signatures[0], signatures[1] if len(signatures) > 1 else None)
            _check_variants(component, root, signatures[0], refused, problems)
    return found


def _models(component: ComponentSpec) -> Iterator[tuple[str, Location]]:
    at = below(component.at, "model")
    if component.model_later is not None:
        yield component.model or "", below(at, "first")
        yield component.model_later, below(at, "later")
    elif component.chosen is not None:
        yield component.chosen.variant.model, below(component.chosen.variant.at, "model")
    elif component.model is not None:
        yield component.model, at


def _check_variants(
    component: ComponentSpec, root: Path, chosen: GraphSignature, refused: frozenset[str], problems: Problems
) -> None:
    """The graphs that are not used here must be readable, and have the ports of the one that is."""
    for variant in component.variants:
        at = below(variant.at, "model")
        if component.chosen is None or variant is component.chosen.variant or at.path in refused:
            continue
        signature = _read(root, variant.model, at, problems)
        for side in ("inputs", "outputs") if signature is not None else ():
            ours, theirs = getattr(chosen, side), getattr(signature, side)
            for port in sorted(ours.keys() ^ theirs.keys()):
                pair = (variant.model, component.chosen.variant.model)
                lacks, has = pair if port in ours else pair[::-1]
                message = f"{lacks} has no {side[:-1]} '{port}', which {has} has"
                problems.error(at, "variant.ports", message, "all variants of a component have the same ports")


def _read(root: Path, file: str, at: Location, problems: Problems) -> GraphSignature | None:
    path = root / file
    try:
        signature = read_signature(path, root)
        faults = check_external_data(path, root)
    except GraphFileError as error:
        problems.error(at, error.problem, error.message, error.hint)
        return None
    for fault in faults:
        problems.error(at, fault.code, f"{file}: {fault.message}", fault.hint)
    return signature

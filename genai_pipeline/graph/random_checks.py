"""Random numbers inside graphs: what is lifted is said, what cannot be lifted is refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from genai_pipeline.graph.component_files import ComponentFiles
from genai_pipeline.graph.random_nodes import RandomNode
from genai_pipeline.graph.scope import Scope
from genai_pipeline.graph.uses import below
from genai_pipeline.metadata.model import ComponentSpec, PackageSpec
from genai_pipeline.problems import Problems

SHOWN = 3  # nodes named in a message; the rest are counted


def check_random_nodes(root: Scope, spec: PackageSpec, files: Mapping[str, ComponentFiles], problems: Problems) -> None:
    """Report every component whose graph draws random numbers, and those whose numbers no seed could repeat."""
    drawing = {name: nodes for name, found in files.items() if (nodes := _nodes(found))}
    for name, nodes in drawing.items():
        _check_component(spec.components[name], nodes, problems)
    for scope in root.subtree():
        for node in scope.nodes:
            run = node.spec.run
            if run in drawing and any(around.kind == "decode" for around in scope.chain()):
                message = f"'{run}' draws random numbers in {_named(drawing[run])}; in the body of a decode loop"
                hint = "export it without, and let the loop choose, or draw with operations outside"
                problems.error(
                    below(node.spec.at, "run"), "model.random_in_loop", f"{message} no seed can repeat them", hint
                )


def _check_component(component: ComponentSpec, nodes: Iterable[RandomNode], problems: Problems) -> None:
    at, file = below(component.at, "model"), PurePosixPath(component.model or "").name
    lifted = [node for node in nodes if not node.fault]
    for node in nodes:
        if node.fault:
            message = f"{file}: node {node} draws random numbers that no seed can repeat: {node.fault}"
            problems.error(at, "model.random", message)
    if lifted:
        source = "the request's seed" if any(not node.seeded for node in lifted) else "the seeds written in it"
        message = f"{file}: {_named(lifted)} draw random numbers; they are made to follow from {source}"
        problems.note(at, "model.random_lifted", message)


def _nodes(files: ComponentFiles) -> tuple[RandomNode, ...]:
    return tuple(dict.fromkeys(node for signature in files.all for node in signature.random_nodes))


def _named(nodes: Iterable[RandomNode]) -> str:
    """Nodes as the object of a message."""
    listed = list(nodes)
    more = len(listed) - SHOWN
    shown = ", ".join(map(str, listed[:SHOWN]))
    return f"node{'s' if len(listed) > 1 else ''} {shown}{f' and {more} more' if more > 0 else ''}"

"""How much memory a package will take: the files of its graphs and weights, and the state of its sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from genai_pipeline.graph.plan import ExecutionPlan
from genai_pipeline.kv.budget import machine_memory, parse_memory
from genai_pipeline.server.config import Served

STATE_SHARE: Final = 4  # of a memory limit, the part that the state of a package gets which names no ``memory``


def load_arguments(served: Served, limit: int | None) -> dict[str, Any]:
    """The load options of a package within a memory limit of all packages together."""
    if limit is None:
        return dict(served.load)
    return {**served.load, "memory": _state_bytes(served, limit)}


def footprint(served: Served, limit: int | None) -> int:
    """Bytes that a package will take; 0 where nothing limits them. Pulls a known name on first use.

    Raises PackageError or OptionError.
    """
    if limit is None:
        return 0
    from genai_pipeline.checking import check_package
    from genai_pipeline.config import LoadOptions
    from genai_pipeline.import_checks import check_made
    from genai_pipeline.importers.pull import lending, resolve

    path = resolve(served.package, precision=served.precision, check=check_made)
    load = LoadOptions.of(**served.load)
    checked = check_package(path, lending(), backend=load.backend, providers=load.providers, precision=served.precision)
    weights = 0 if checked.plan is None else weight_bytes(checked.plan)
    return weights + _state_bytes(served, limit)


def weight_bytes(plan: ExecutionPlan) -> int:
    """Bytes of the files that the graphs of a package are read from, each counted once."""
    from genai_pipeline.graph.onnx_file import external_tensors, read_outline

    files: set[Path] = set()
    for component in plan.components.values():
        root = component.spec.root or plan.package.root
        for model in (component.model, component.model_later):
            if model is None:
                continue
            path = root / model
            files.add(path)
            files |= {path.parent / tensor.location for tensor in external_tensors(read_outline(path, root))}
    return sum(file.stat().st_size for file in files)


def _state_bytes(served: Served, limit: int) -> int:
    memory = served.load.get("memory", "auto")
    return limit // STATE_SHARE if memory == "auto" else parse_memory(memory, machine_memory())

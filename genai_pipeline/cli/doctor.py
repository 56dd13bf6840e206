"""``genai-pipeline doctor``: what this machine and this installation offer, and what is wrong with them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from genai_pipeline.cli.output import write, write_json
from genai_pipeline.errors import GenaiError

_LIBRARIES = ("numpy", "onnx", "onnx-ir", "tokenizers", "networkx", "jsonschema", "jinja2", "gguf", "pyyaml")
_EXTRAS = {
    "image": ("pillow",),
    "audio": ("soundfile", "soxr"),
    "server": ("starlette", "uvicorn", "prometheus-client"),
    "chat": ("prompt_toolkit",),
    "hub": ("huggingface-hub",),
    "structured": ("llguidance",),
    "bench": ("onnxruntime-genai",),
    "nxrt": ("nxrt", "nxrt-ep-cpu"),
}
_MIB = 1 << 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    package: Annotated[str | None, typer.Argument(help="Also tell which of its variants would run here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Report Python, runtime, providers, processors, memory, cache and versions; exit code 5 without a runtime."""
    problems: list[GenaiError] = []
    report = {name: _section(section, problems) for name, section in _SECTIONS.items()}
    if package is not None:
        report["variants"] = _section(lambda: _variants(package), problems)
    if as_json:
        write_json({**report, "problems": [problem.to_dict() for problem in problems]})
    else:
        write("".join(_lines(report)))
    if problems:
        raise typer.Exit(max(problem.exit_code for problem in problems))


def _section(section: Callable[[], Mapping[str, Any]], problems: list[GenaiError]) -> Mapping[str, Any]:
    try:
        return section()
    except GenaiError as error:
        problems.append(error)
        return {"error": error.message, "hint": error.hint}


def _python() -> Mapping[str, Any]:
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "pip": importlib.util.find_spec("pip") is not None,
    }


def _runtime() -> Mapping[str, Any]:
    from genai_pipeline.backends.providers import short_name
    from genai_pipeline.backends.runtime import installed_distributions, onnxruntime

    runtime = onnxruntime()
    return {
        "onnxruntime": str(runtime.__version__),
        "distributions": installed_distributions(),
        "providers": [short_name(name) for name in runtime.get_available_providers()],
    }


def _backends() -> Mapping[str, Any]:
    """Backend -> version and providers, or how to get it."""
    from genai_pipeline.backends.registry import backend_names

    return {name: _backend(name) for name in backend_names()}


def _backend(name: str) -> Mapping[str, Any]:
    from genai_pipeline.backends.registry import make_backend

    try:
        backend = make_backend(name)
        return {"version": backend.version(), "providers": list(backend.providers())}
    except GenaiError as error:
        return {"missing": error.message, "hint": error.hint}
    except (ImportError, AttributeError) as error:  # of a backend that another distribution declares
        return {"missing": f"it cannot be loaded: {error}"}


def _providers() -> Mapping[str, Any]:
    """Of ONNX Runtime: which are here, the libraries of installed plugins, and how to get others."""
    from genai_pipeline.backends.ort_plugins import installed_plugins
    from genai_pipeline.backends.providers import INSTALL, short_name
    from genai_pipeline.backends.runtime import onnxruntime

    there = {short_name(name): "here" for name in onnxruntime().get_available_providers()}
    plugins = {f"plugin:{distribution}": f"here: {library}" for distribution, library in installed_plugins().items()}
    return {**{name: f"not here: {how}" for name, how in INSTALL.items()}, **there, **plugins}


def _processors() -> Mapping[str, Any]:
    from genai_pipeline.backends.threads import cgroup_quota, usable_cores

    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "logical": os.cpu_count(),
        "allowed": affinity,
        "quota": cgroup_quota(),
        "threads": usable_cores(),
    }


def _memory() -> Mapping[str, Any]:
    import psutil

    memory = psutil.virtual_memory()
    return {"total_mib": memory.total // _MIB, "available_mib": memory.available // _MIB}


def _cache() -> Mapping[str, Any]:
    from genai_pipeline.importers.cache import cache_home
    from genai_pipeline.importers.compiled_graphs import compiled_graphs
    from genai_pipeline.importers.pull import is_offline, list_packages

    home, compiled = cache_home(), compiled_graphs()
    there = next((folder for folder in (home, *home.parents) if _is_folder(folder)), home)
    return {
        "folder": str(home),
        "writable": _can_be_written(home),
        "free_mib": shutil.disk_usage(there).free // _MIB,
        "offline": is_offline(),
        "compiled_graphs": {"count": compiled.count, "mib": compiled.nbytes // _MIB},
        "packages": {entry.name: sorted(entry.cached) for entry in list_packages()},
    }


def _variants(package: str) -> Mapping[str, Any]:
    """Component -> the graph that runs here and why."""
    from genai_pipeline.checking import check_package
    from genai_pipeline.importers.pull import metadata_of
    from genai_pipeline.loading import load_options

    options = load_options({})
    spec = check_package(metadata_of(package), backend=options.backend, providers=options.providers).spec
    chosen = {name: one.chosen for name, one in (spec.components if spec is not None else {}).items()}
    return {name: f"{one.variant.model}: {one.reason}" for name, one in chosen.items() if one is not None}


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # not even its parent can be looked into
        return False


def _can_be_written(folder: Path) -> bool:
    """Whether something can be made in the folder, or the folder itself: found out by doing so."""
    there = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor.", dir=there):
            return True
    except OSError:
        return False


def _environment() -> Mapping[str, Any]:
    """The load options that variables set. Raises OptionError for one that cannot be."""
    from genai_pipeline.config import VARIABLES, environment_options

    environment_options(os.environ)
    return {variable: os.environ.get(variable, "").strip() or None for variable in VARIABLES}


def _versions() -> Mapping[str, Any]:
    return {name: version_of(name) for name in ("genai-pipeline", *_LIBRARIES)}


def _extras() -> Mapping[str, Any]:
    return {extra: {name: version_of(name) for name in names} for extra, names in _EXTRAS.items()}


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


_SECTIONS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "python": _python,
    "runtime": _runtime,
    "backends": _backends,
    "providers": _providers,
    "processors": _processors,
    "memory": _memory,
    "cache": _cache,
    "environment": _environment,
    "versions": _versions,
    "extras": _extras,
}


def _lines(report: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for section, values in report.items():
        lines.append(f"{section}\n" if values else f"{section:<16} none\n")
        lines += [f"  {name:<14} {_shown(value)}\n" for name, value in values.items()]
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)

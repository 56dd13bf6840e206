"""Imports ONNX Runtime on first use, and says in one line what is wrong when it cannot be used."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
from typing import Any

from genai_pipeline.errors import RuntimeMissingError

MINIMUM_VERSION = (1, 32)
INSTALL_HINT = "install 'genai-pipeline[cpu]' (or 'genai-pipeline[gpu]' for NVIDIA)"

# Distributions that all provide the module ``onnxruntime`` and overwrite each other's files.
_DISTRIBUTIONS = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
    "onnxruntime-qnn",
    "onnxruntime-rocm",
    "onnxruntime-migraphx",
)
# Read when the module is imported: without it, the runtime keeps an identity of the device and events in the home.
_NO_TELEMETRY = ("ORT_DISABLE_TELEMETRY", "1")


def installed_distributions() -> dict[str, str]:
    """Installed distributions that provide ONNX Runtime, with their versions."""
    found = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def check_distributions(found: dict[str, str]) -> None:
    """Raise RuntimeMissingError unless exactly one distribution of a recent enough version is there."""
    if len(found) > 1:
        names = " and ".join(f"{name} {version}" for name, version in found.items())
        spare = " ".join(found)
        raise RuntimeMissingError(
            f"{names} are both installed and overwrite each other",
            hint=f"pip uninstall -y {spare}, then {INSTALL_HINT}",
        )
    for name, version in found.items():
        if _release(version) < MINIMUM_VERSION:
            wanted = ".".join(map(str, MINIMUM_VERSION))
            raise RuntimeMissingError(f"{name} {version} is too old: {wanted} or later is needed", hint=INSTALL_HINT)


def onnxruntime() -> Any:
    """The module ``onnxruntime``. Raises RuntimeMissingError when it is absent, doubled, too old or broken.

    Its telemetry is off, unless the environment says otherwise.
    """
    os.environ.setdefault(*_NO_TELEMETRY)
    check_distributions(installed_distributions())
    try:
        module = importlib.import_module("onnxruntime")
    except ModuleNotFoundError as error:
        raise RuntimeMissingError("ONNX Runtime is not installed", hint=INSTALL_HINT) from error
    except ImportError as error:
        text = str(error).splitlines()[0]
        raise RuntimeMissingError(f"ONNX Runtime is installed but cannot start: {text}", hint=INSTALL_HINT) from error
    # A build from source has no distribution of a known name; its module still says its version.
    check_distributions({"onnxruntime": str(module.__version__)})
    return module


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])

"""Reads the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_config(path: Path, load: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ServerConfig from a YAML file."""
    raise FileNotFoundError(path)

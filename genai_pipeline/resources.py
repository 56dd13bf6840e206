"""Where the files that ship beside the code are: the JSON Schemas and the model packages.

A source tree keeps them once, at its top; a wheel carries them inside the package (``_data``). Nobody else looks
for either, so nothing else has to know which of the two this installation is.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_SOURCE_TREE = _PACKAGE.parent


def _folder(name: str) -> Path:
    in_tree = _SOURCE_TREE / name
    if (_SOURCE_TREE / "pyproject.toml").is_file() and in_tree.is_dir():
        return in_tree
    return _PACKAGE / "_data" / name


def schemas_dir() -> Path:
    """The folder with the JSON Schemas."""
    return _folder("schemas")


def model_packages_dir() -> Path:
    """The folder with one folder per known model package."""
    return _folder("model_packages")

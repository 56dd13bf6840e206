"""Imports nxrt on first use, and tells what its errors mean."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.errors import RuntimeMissingError

INSTALL_HINT: Final = "install 'genai-pipeline[nxrt]', or use the backend ort"

_UNSUPPORTED = re.compile(
    r"unsupported operator (?P<op>\S+): .*?node (?P<node><[^>]*>|\"[^\"]*\"|\S+), opset", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An operator that the runtime has no kernel for, and the node that needs it."""

    op: str
    node: str


def nxrt() -> Any:
    """The module ``nxrt``. Raises RuntimeMissingError when it is absent or broken."""
    try:
        return importlib.import_module("nxrt")
    except ModuleNotFoundError as error:
        raise RuntimeMissingError("nxrt is not installed", hint=INSTALL_HINT) from error
    except ImportError as error:
        text = str(error).splitlines()[0]
        raise RuntimeMissingError(f"nxrt is installed but cannot start: {text}", hint=INSTALL_HINT) from error


def unsupported(error: BaseException) -> Unsupported | None:
    """What an error says is missing; None for errors of another kind."""
    found = _UNSUPPORTED.search(str(error))
    return None if found is None else Unsupported(found["op"], found["node"].strip('"'))


def is_failure(error: BaseException) -> bool:
    """Whether an exception says that the runtime failed; its panics are no ordinary exceptions."""
    return not isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)


def first_line(error: BaseException) -> str:
    """The first line of what the runtime says."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__

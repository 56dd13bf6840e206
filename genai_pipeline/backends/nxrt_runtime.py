"""Imports nxrt on first use, and tells what its errors mean."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

from genai_pipeline.errors import RuntimeMissingError

INSTALL_HINT: Final = "install 'genai-pipeline[nxrt]', or use the backend ort"

_UNSUPPORTED: Final = re.compile(
    r"unsupported operator (?P<op>\S+): .*?node (?P<node><[^>]*>|\"[^\"]*\"|\S+), opset", re.DOTALL
)
_RUNNING: Final = re.compile(r"internal executor error: node \d+ \(\"(?P<node>[^\"]*)\", op '(?P<op>[^']*)'")
_KERNEL: Final = re.compile(r"kernel execution failed: (?:(?P<op>\w+): )?(?P<reason>.*)", re.DOTALL)
_ADVICE: Final = re.compile(r"\.? (?:\(WHAT|WHY:)")  # where an explanation for authors of runtimes begins

P = ParamSpec("P")
T = TypeVar("T")


class NxrtFailure(Exception):  # noqa: N818 - it never leaves this backend
    """What the runtime raised; its panics are no ordinary exceptions."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An operator that the runtime has no kernel for, and the node that needs it."""

    op: str
    node: str


@dataclass(frozen=True, slots=True)
class Failing:
    """What failed, as far as the runtime says: the operator and the node ("": not said), and why."""

    op: str
    node: str
    reason: str

    @staticmethod
    def of(error: BaseException) -> Failing:
        """What an error tells."""
        text = str(error)
        running, kernel = _RUNNING.search(text), _KERNEL.search(text)
        op = running["op"].rpartition("::")[2] if running else (kernel["op"] if kernel and kernel["op"] else "")
        reason = kernel["reason"] if kernel else text
        return Failing(op, running["node"] if running else "", _ADVICE.split(" ".join(reason.split()))[0])


def nxrt() -> Any:
    """The module ``nxrt``. Raises RuntimeMissingError when it is absent or broken."""
    try:
        return importlib.import_module("nxrt")
    except ModuleNotFoundError as error:
        raise RuntimeMissingError("nxrt is not installed", hint=INSTALL_HINT) from error
    except ImportError as error:
        text = str(error).splitlines()[0]
        raise RuntimeMissingError(f"nxrt is installed but cannot start: {text}", hint=INSTALL_HINT) from error


def guarded(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What ``call``, a function of the runtime, gives. Raises NxrtFailure for whatever the runtime raises."""
    try:
        return call(*args, **kwargs)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise NxrtFailure(str(error) or type(error).__name__) from error


def unsupported(error: BaseException) -> Unsupported | None:
    """What an error says is missing; None for errors of another kind."""
    found = _UNSUPPORTED.search(str(error))
    return None if found is None else Unsupported(found["op"], found["node"].strip('"'))


def first_line(error: BaseException) -> str:
    """The first line of what the runtime says."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__

"""ONNX Runtime's exceptions as errors of ours: what failed, without C++ paths and status codes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from genai_pipeline.backends.dtypes import runtime_dtype_name
from genai_pipeline.backends.providers import short_name

_STATUS = re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_SOURCE = re.compile(r"/\S*onnxruntime_src/\S+:\d+ .*?(?:\)|>)(?: const)? (?=[A-Z\[\w])")
_LOADING = re.compile(r"^Load model from .*? failed:")
_MISSING_KERNEL = re.compile(r"Could not find an implementation for (\w+)\((\d+)\) node with name '([^']*)'")
_LONGEST = 400


@dataclass(frozen=True, slots=True)
class MissingKernel:
    """An operation for which no provider of the session has a kernel in the dtype the graph needs."""

    op: str
    version: int
    node: str  # "" where the node has no name


def missing_kernel(error: BaseException) -> MissingKernel | None:
    """The operation that a load failed for, when that is why it failed."""
    found = _MISSING_KERNEL.search(str(error))
    return MissingKernel(found[1], int(found[2]), found[3]) if found else None


def shorten(error: BaseException) -> str:
    """What the runtime says, in one line, without source files, status codes and advice for C++ callers."""
    text = " ".join(str(error).split())
    text = _STATUS.sub("", _SOURCE.sub("", text)).strip()
    text = (
        _LOADING.sub("", text).removeprefix("Error in execution: ").removeprefix("This is an invalid model. ").strip()
    )
    text = text.partition(" When calling Run()")[0]
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def kernel_hint(op: str, providers: tuple[str, ...]) -> str:
    """In which dtypes the providers have kernels of an operation, and what can be done when that is not enough."""
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    dtypes = {
        runtime_dtype_name(name)
        for kernel in native.get_all_opkernel_def()
        if kernel.op_name == op and short_name(kernel.provider) in providers
        for name in next(iter(kernel.type_constraints.values()), ())
    }
    if not dtypes:
        return "use a provider that has it, or export the graph without it"
    where = ", ".join(providers)
    return (
        f"{where} has {op} for {', '.join(sorted(dtypes))}: cast to one of these in the graph, or use another provider"
    )

"""How a route has a package do a task: embed, transcribe or speak; inputs and declared parameters in, outputs out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request

from genai_pipeline.errors import GenaiError
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.pipeline import Pipeline
from genai_pipeline.problems import nearest, one_of
from genai_pipeline.server.abilities import TASKS
from genai_pipeline.server.api_errors import ApiError, api_error, bad_request
from genai_pipeline.server.asking import Asked, borrow, follow, queueing, require
from genai_pipeline.server.bodies import Fields
from genai_pipeline.server.openai.fields import read_priority
from genai_pipeline.server.relay import numbered, whole
from genai_pipeline.tasks import Task

_NOTED: Final = ("user", "safety_identifier")  # change no answer


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What a request sets besides its input: declared parameters, and options of the request."""

    parameters: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Borrowed:
    """A package that was borrowed for a task, and the input and output that the task means."""

    pipe: Pipeline
    task: Task
    model: str

    @property
    def package(self) -> PackageSpec:
        """What the package declares."""
        return self.pipe.plan.package


def read_options(fields: Fields) -> TaskOptions:
    """The fields that all tasks have. Raises ApiError 400."""
    for name in _NOTED:
        fields.text(name)
    given = {"priority": read_priority(fields), "seed": fields.integer("seed"), "timeout": fields.number("timeout")}
    options = {name: value for name, value in given.items() if value is not None}
    return TaskOptions(fields.mapping("parameters") or {}, options)


async def borrow_for(request: Request, model: str | None, task: str) -> Borrowed:
    """The package of a model that does a task. Raises ApiError 400, 404, 429 or 503."""
    name = await require(request, model, task)
    pipe = await borrow(request, name)
    return Borrowed(pipe, TASKS[task](pipe.plan.package), name)


def named_parameter(borrowed: Borrowed, name: str, value: Any) -> dict[str, Any]:
    """A field of the interface as the parameter of its name. Raises ApiError 400 where the package declares none."""
    if value is None:
        return {}
    if name not in borrowed.package.parameters:
        message = f"{name} is not supported by the model '{borrowed.model}'"
        raise bad_request(message, name, code="unsupported_field")
    return {name: value}


async def start(request: Request, borrowed: Borrowed, value: Any, given: TaskOptions, field: str) -> Asked:
    """Have a task done for one value of its input, which is that of a ``field`` of the body. Raises ApiError."""
    inputs = task_inputs(borrowed, value, given.parameters)
    try:
        stream = await borrowed.pipe.aopen_run(inputs, **queueing(request, given.options))
    except GenaiError as error:
        raise named_field(api_error(error), borrowed, field) from error
    return follow(request, borrowed.pipe, stream)


def named_field(error: ApiError, borrowed: Borrowed, field: str) -> ApiError:
    """The same error, about the field of the body where it is about the task's input: bodies have no other names."""
    if error.param in ("prompt", borrowed.task.input):
        error.param = field
    return error


def task_inputs(borrowed: Borrowed, value: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of ``run``. Raises ApiError 400 for a parameter that is none.

    No parameter of a client may have the name of an input: an image or a sound could then be a path.
    """
    declared = borrowed.package.parameters
    for name in parameters:
        if name not in declared:
            hint = nearest(name[:100], declared) or (f"it has {one_of(declared)}" if declared else "it has none")
            message = f"the model '{borrowed.model}' has no parameter '{name[:100]}'; {hint}"
            raise bad_request(message, f"parameters.{name[:100]}")
    return {borrowed.task.input: value, **parameters}


async def outputs(asked: Asked) -> Mapping[str, Any]:
    """What a task gives when it is over. Raises ApiError."""
    found: Mapping[str, Any] = {}
    async for _, event in whole(numbered((asked,)), {}):
        found = found if event.outputs is None else event.outputs
    return found

"""Errors as clients see them: one class, how the project's own errors become it, and its shape in each interface."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from genai_pipeline.errors import (
    BackendError,
    CapacityError,
    CheckpointError,
    ConstraintRunError,
    EngineClosedError,
    EngineFailedError,
    ExtraMissingError,
    GenaiError,
    PackageError,
    QueueFullError,
    RequestError,
    RequestTimeoutError,
)

RETRY_SECONDS: Final = 1  # after which a client that was turned away may try again
CLIENT_GONE: Final = 499  # never sent: what logs and metrics say of requests whose client left

_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_UNAVAILABLE: Final = "the model cannot be loaded at the moment"
_UNLOADED: Final = "the model was unloaded, or the server is going down; send it again later"
_BROKEN: Final = "the server could not carry out this request; its log has the reason under the request's id"


class ApiError(Exception):
    """A response that says why not: HTTP status, text for people, type and code for programs, the field at fault.

    ``retry_after`` is in seconds; it becomes the header ``Retry-After``.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.code = code
        self.param = param
        self.retry_after = retry_after


def bad_request(message: str, param: str | None = None, *, code: str = "invalid_request") -> ApiError:
    """A 400 that names the field at fault."""
    return ApiError(400, message, code=code, param=param)


def too_many(message: str, *, code: str, retry_after: float = RETRY_SECONDS) -> ApiError:
    """A 429: the same request may be taken later."""
    return ApiError(429, message, type="rate_limit_error", code=code, retry_after=retry_after)


def unavailable(message: str, *, code: str, retry_after: float = RETRY_SECONDS) -> ApiError:
    """A 503: not now."""
    return ApiError(503, message, type="server_error", code=code, retry_after=retry_after)


def api_error(error: BaseException, names: Mapping[str, str] | None = None) -> ApiError:
    """What a client is told of an error. Texts about the inside of the server stay there.

    ``names`` are the interface's own names of options, by those that ``Pipeline.aopen`` has.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestError):
        param = error.param if error.param is None else _renamed(error.param, names)
        return ApiError(400, _renamed(_with_hint(error), names), code=error.code, param=param)
    if isinstance(error, QueueFullError):
        return too_many(error.message, code=error.code)
    for kind, status, type_, code, message in _OTHERS:
        if isinstance(error, kind):
            return ApiError(status, message or error.message, type=type_, code=code, retry_after=_retry(error, status))
    return ApiError(500, _BROKEN, type="server_error", code="internal_error")


_OTHERS: Final[tuple[tuple[type[GenaiError], int, str, str, str], ...]] = (
    (CapacityError, 400, "invalid_request_error", "capacity_exceeded", ""),
    (ConstraintRunError, 400, "invalid_request_error", "constraint_failed", ""),
    (CheckpointError, 400, "invalid_request_error", "checkpoint_invalid", "the saved state cannot be used"),
    (ExtraMissingError, 400, "invalid_request_error", "extra_missing", ""),
    (RequestTimeoutError, 408, "timeout_error", "timeout", ""),
    (
        EngineClosedError,
        503,
        "server_error",
        "model_unloaded",
        _UNLOADED,
    ),
    (EngineFailedError, 500, "server_error", "engine_failed", _BROKEN),
    (PackageError, 503, "server_error", "model_unavailable", _UNAVAILABLE),
    (BackendError, 500, "server_error", "backend_error", _BROKEN),
)


def _retry(error: GenaiError, status: int) -> float | None:
    return RETRY_SECONDS if status == 503 or error.retryable else None


def _with_hint(error: GenaiError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _renamed(text: str, names: Mapping[str, str] | None) -> str:
    for name in sorted(names or (), key=len, reverse=True):
        text = re.sub(rf"\b{re.escape(name)}\b", (names or {})[name], text)
    return text


def openai_body(error: ApiError) -> dict[str, Any]:
    """The error in the shape of OpenAI's interface."""
    return {"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}}


def anthropic_body(error: ApiError) -> dict[str, Any]:
    """The error in the shape of Anthropic's interface."""
    kind = _ANTHROPIC_TYPES.get(error.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def error_body(path: str, error: ApiError) -> dict[str, Any]:
    """The error in the shape of the interface that the path belongs to."""
    anthropic = path == "/v1/messages" or path.startswith("/v1/messages/")
    return anthropic_body(error) if anthropic else openai_body(error)


def error_headers(error: ApiError) -> dict[str, str]:
    """The headers of the response: ``Retry-After`` in whole seconds, ``WWW-Authenticate`` where a key is missing."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, -int(-error.retry_after // 1)))
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers

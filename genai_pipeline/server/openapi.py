"""The OpenAPI document of a server, made of its routes: what their handlers say of themselves, and what they take."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, Final

from starlette.routing import BaseRoute, Route

import genai_pipeline
from genai_pipeline.server.openapi_bodies import BODIES, FORMS, STREAMED

JsonObject = dict[str, Any]

_METHODS: Final = ("GET", "POST", "DELETE")
_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_TAGS: Final = {"/admin": "administration", "/metrics": "administration", "/page": "page", "/v1": "models"}
_QUERIES: Final[dict[str, tuple[JsonObject, ...]]] = {
    "/v1/responses/{id}/input_items": (
        {"name": "limit", "schema": {"type": "integer", "minimum": 1, "maximum": 100}},
        {"name": "order", "schema": {"enum": ["asc", "desc"]}},
        {"name": "after", "schema": {"type": "string"}},
    ),
}
_TEXT_BODIES: Final = {
    "/": "text/html",
    "/metrics": "text/plain",
    "/page/{name}": "*/*",
    "/v1/audio/speech": "audio/wav",
}
_BODIES: Final = {"application/json": BODIES, "multipart/form-data": FORMS}
_ERROR: Final[JsonObject] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        },
        "request_id": {"type": "string"},
    },
}


def document(routes: Iterable[BaseRoute]) -> JsonObject:
    """The document of a server with these routes."""
    paths: dict[str, JsonObject] = {}
    for route in routes:
        if isinstance(route, Route):
            path = _PARAMETER.sub(r"{\1}", route.path)
            for method in _METHODS:
                if method in (route.methods or ()):
                    paths.setdefault(path, {})[method.lower()] = _operation(route, path, method)
    return {
        "openapi": "3.1.0",
        "info": {"title": "genai-pipeline", "version": genai_pipeline.__version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}, {}],
    }


def _operation(route: Route, path: str, method: str) -> JsonObject:
    summary, _, description = (inspect.getdoc(route.endpoint) or route.name).partition("\n")
    made: JsonObject = {
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', path)}",
        "summary": summary.rstrip(".").split(" Raises ")[0],
        "tags": [next((tag for start, tag in _TAGS.items() if path.startswith(start)), "server")],
        "responses": _responses(path),
    }
    if description.strip():
        made["description"] = description.strip()
    named = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(path)
    ]
    queries = [{"in": "query", **query} for query in _QUERIES.get(path, ())]
    if named or queries:
        made["parameters"] = [*named, *queries]
    for media, bodies in _BODIES.items():
        if method == "POST" and path in bodies:
            made["requestBody"] = {"required": True, "content": {media: {"schema": bodies[path]}}}
    return made


def _responses(path: str) -> JsonObject:
    media = _TEXT_BODIES.get(path, "application/json")
    content: JsonObject = {media: {"schema": {} if path in _TEXT_BODIES else {"type": "object"}}}
    if path in STREAMED:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "200": {"description": "Done.", "content": content},
        "default": {"description": "Not done; the error says why.", "content": error},
    }

"""Responses with JSON, large ones too, that never keep the event loop for long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from genai_pipeline.server import json_text


async def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response with a value as JSON."""
    content = await json_text.encode(value)
    return Response(content, status, headers=dict(headers or {}), media_type="application/json")

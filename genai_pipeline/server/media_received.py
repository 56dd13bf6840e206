"""Images and sounds of a conversation on their way to a package: only what a client sent, or what its URL may fetch.

``received`` is the one gate between a body and a package: what passes it are bytes. No part can name a file of this
machine: one that is no ``Source`` is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request

from genai_pipeline.pipeline import Pipeline
from genai_pipeline.preprocess.messages import MODALITY_OF_PART
from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.inline_media import read_base64, too_large
from genai_pipeline.server.media_parts import Source, unsupported_part
from genai_pipeline.server.media_urls import MediaFetcher
from genai_pipeline.server.room import Claim, claim


async def received(request: Request, pipe: Pipeline, messages: Any) -> Any:
    """A conversation with the bytes of its images and sounds. Raises ApiError 400.

    Nothing is fetched or decoded that the package does not take; it refuses these parts itself.
    """
    takes = {spec.modality for spec in pipe.plan.package.inputs.values()}
    sources = [part for part in _parts(messages) if isinstance(part, Source)]
    wanted = [source for source in sources if source.modality in takes]
    limits = request.app.state.config.limits
    if len(wanted) > limits.media_items:
        message = f"there are {len(wanted)} images and sounds in the conversation; at most {limits.media_items}"
        raise bad_request(message, wanted[limits.media_items].param, code="too_many_media")
    found = dict(zip(map(id, wanted), await _read_all(request, wanted), strict=True))
    if not isinstance(messages, list | tuple):
        return messages
    return [_changed(message, lambda part: _given(part, found)) for message in messages]


def described(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A conversation as JSON shows it: of images and sounds, how many bytes they have."""
    return [_changed(message, _described) for message in messages]


def check_kept(request: Request, before: Sequence[Mapping[str, Any]], said: Mapping[str, Any]) -> None:
    """Raises ApiError 400 for a conversation that is kept and would have more media than one request may have."""
    sizes = [size for message in (*before, said) for size in _sizes(message)]
    limits = request.app.state.config.limits
    if len(sizes) > limits.media_items or sum(sizes) > limits.media_bytes:
        most = f"{limits.media_items} images and sounds, and {limits.media_bytes} bytes of them"
        raise bad_request(f"a session may have {most}", "content", code="too_many_media")


def _sizes(message: Mapping[str, Any]) -> Iterator[int]:
    content = message.get("content")
    for part in content if isinstance(content, list | tuple) else ():
        if (data := _data(part)) is not None:
            yield len(data)


def _described(part: Any) -> Any:
    data = _data(part)
    return part if data is None else {"type": part["type"], "bytes": len(data)}


def _data(part: Any) -> bytes | None:
    """The bytes of a part that was received."""
    data = part.get(str(part.get("type"))) if isinstance(part, Mapping) else None
    return data if isinstance(data, bytes) else None


async def _read_all(request: Request, sources: Sequence[Source]) -> list[bytes]:
    """What each source means, all together within the server's limit. Raises ApiError 400."""
    if not sources:
        return []
    most: int = request.app.state.config.limits.media_bytes
    room = claim(request)
    reading = [asyncio.ensure_future(_read(request.app.state.media, source, most, room)) for source in sources]
    try:
        found = await asyncio.gather(*reading)
    finally:  # when one fails, the others must not take room after it was given back
        for one in reading:
            one.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    left = most
    for source, data in zip(sources, found, strict=True):
        left -= len(data)
        if left < 0:
            raise too_large(most, source.param)
    return found


async def _read(fetcher: MediaFetcher, source: Source, most: int, room: Claim) -> bytes:
    try:
        if source.form == "base64":
            data = await asyncio.to_thread(read_base64, source.text, most, source.param)
        else:
            data = (await fetcher.fetch(source.text, source.param)).data
    except ApiError as error:
        raise bad_request(f"{source.param}: {error.message}", source.param, code=error.code or "") from error
    room.take(len(data))
    return data


def _parts(messages: Any) -> Iterator[Any]:
    """The parts of all messages. Raises ApiError for one that has media which nobody has read."""
    for index, message in enumerate(messages if isinstance(messages, list | tuple) else ()):
        content = message.get("content") if isinstance(message, Mapping) else None
        for number, part in enumerate(content if isinstance(content, list | tuple) else ()):
            _check(part, f"messages[{index}].content[{number}]")
            yield part


def _check(part: Any, at: str) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and MODALITY_OF_PART.get(kind, "text") != "text":
        raise unsupported_part(at, kind)


def _changed(message: Any, change: Callable[[Any], Any]) -> Any:
    """A message with each of its parts changed."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list | tuple):
        return message
    return {**message, "content": [change(part) for part in content]}


def _given(part: Any, found: Mapping[int, bytes]) -> Any:
    if not isinstance(part, Source):
        return part
    data = found.get(id(part))
    return {"type": part.modality} if data is None else {"type": part.modality, part.modality: data}

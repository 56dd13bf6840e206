"""Images and sounds in messages on their way to a package: only what a client sent or what its URL may fetch.

The interfaces make a ``Source`` of each part that has an image or a sound. ``received`` is the one gate between a body
and a package: what passes it are bytes. No part can name a file of this machine: one that is no ``Source`` is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from starlette.requests import Request

from genai_pipeline.pipeline import Pipeline
from genai_pipeline.preprocess.messages import MODALITY_OF_PART
from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.bodies import SHOWN, Fields
from genai_pipeline.server.inline_media import is_data_url, read_base64, too_large
from genai_pipeline.server.media_urls import MediaFetcher
from genai_pipeline.server.room import Claim, claim

TYPES: Final[Mapping[str, Literal["image", "audio"]]] = {"image_url": "image", "audio_url": "audio"}  # parts with a URL
SOUND_FORMATS: Final = ("wav", "mp3", "flac", "ogg")
_SUPPORTED: Final = "'text', 'image_url', 'input_audio' and 'audio_url'"


@dataclass(frozen=True, slots=True)
class Source:
    """An image or a sound as a client gave it: a URL, also one with the data in it, or base64 text.

    ``param`` is the field it stands in.
    """

    modality: Literal["image", "audio"]
    form: Literal["url", "base64"]
    text: str
    param: str


def read_part(part: Any, at: str) -> Any:
    """A part of OpenAI's chats: a Source of an image or a sound, any other as it is. Raises ApiError 400."""
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or MODALITY_OF_PART.get(kind, "text") == "text":
        return part
    fields = Fields(part, f"{at}.")
    if kind == "input_audio":
        return read_sound(fields, at)
    if kind in TYPES:
        return _read_url(fields, kind, at)
    raise _unsupported(at, kind)


def read_sound(fields: Fields, at: str) -> Source:
    """The sound of a part ``input_audio``. Raises ApiError 400."""
    sound = Fields(fields.must("input_audio", fields.mapping("input_audio")), f"{at}.input_audio.")
    data = sound.must("data", sound.text("data"))
    sound.choice("format", SOUND_FORMATS)  # the data themselves say which
    return Source("audio", "base64", data, f"{at}.input_audio.data")


def read_detail(fields: Fields) -> None:
    """How closely to look is for the package to say. Raises ApiError 400 where a client asks for something else."""
    if fields.text("detail") not in (None, "auto"):
        raise fields.wrong("detail", "must be 'auto': the package says how large its images are")


def _read_url(fields: Fields, kind: str, at: str) -> Source:
    given = fields.any(kind)
    if isinstance(given, dict):
        inner = Fields(given, f"{at}.{kind}.")
        read_detail(inner)
        return Source(TYPES[kind], "url", inner.must("url", inner.text("url")), f"{at}.{kind}.url")
    return Source(TYPES[kind], "url", fields.must(kind, fields.text(kind)), f"{at}.{kind}")


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


def _described(part: Any) -> Any:
    if not isinstance(part, Mapping) or not isinstance(data := part.get(str(part.get("type"))), bytes):
        return part
    return {"type": part["type"], "bytes": len(data)}


async def _read_all(request: Request, sources: Sequence[Source]) -> list[bytes]:
    """What each source means, all together within the server's limit. Raises ApiError 400."""
    if not sources:
        return []
    most: int = request.app.state.config.limits.media_bytes
    room = claim(request)
    found = await asyncio.gather(*(_read(request.app.state.media, source, most, room) for source in sources))
    left = most
    for source, data in zip(sources, found, strict=True):
        left -= len(data)
        if left < 0:
            raise too_large(most, source.param)
    return found


async def _read(fetcher: MediaFetcher, source: Source, most: int, room: Claim) -> bytes:
    if source.form == "base64":
        return await asyncio.to_thread(read_base64, source.text, most, source.param)
    data = (await fetcher.fetch(source.text, source.param)).data
    if not is_data_url(source.text):
        room.take(len(data))  # of others it is taken with the body
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
        raise _unsupported(at, kind)


def _unsupported(at: str, kind: str) -> ApiError:
    message = f"{at}: parts of type '{kind[:SHOWN]}' are not supported; {_SUPPORTED} are"
    return bad_request(message, at, code="unsupported_part")


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

"""Images and sounds in conversations: taken out of the content parts of messages before anything else reads these.

A part may bring its own source, or stand for the next one of those the request gives beside the messages:

| part | source |
|---|---|
| ``{"type": "image", "image": source}``, ``{"type": "audio", "audio": source}`` | anything an input takes |
| ``{"type": "image"}``, ``{"type": "audio"}`` | the next one beside the messages |
| ``{"type": "image_url", "image_url": {"url": url}}``, also ``audio_url``; ``input_image`` | a data URL |
| ``{"type": "input_audio", "input_audio": {"data": base64, "format": "wav"}}`` | the bytes |

What stays is a part of the same modality without its source, at which a template writes a placeholder.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.errors import RequestError
from genai_pipeline.preprocess.messages import MODALITY_OF_PART

Messages = Sequence[Mapping[str, Any]]
_URLS: Final[Mapping[str, str]] = {"image_url": "image_url", "input_image": "image_url", "audio_url": "audio_url"}


@dataclass(frozen=True, slots=True)
class MediaPart:
    """A part of a message: what it is, its source (None: the next one beside the messages), and where it stands."""

    modality: str
    source: Any
    where: str


def take_media(messages: Messages, taken: Mapping[str, bool]) -> tuple[Messages, list[MediaPart]]:
    """The conversation without sources, and the parts that had them or stand for one, in order.

    ``taken``: modality -> whether it has placeholders in the prompt; parts of one without disappear from the text. What
    is no conversation, and parts of other modalities, go on to where they are refused. Raises RequestError.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        return messages, []
    found: list[MediaPart] = []
    return [_message(message, f"messages[{i}]", taken, found) for i, message in enumerate(messages)], found


def stub(modality: str) -> dict[str, str]:
    """What a template sees of an image or a sound: templates ask for the type, or whether there is such a key."""
    return {"type": modality, modality: ""}


def _message(message: Any, where: str, taken: Mapping[str, bool], found: list[MediaPart]) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list | tuple):
        return message
    parts = list(_parts(content, f"{where}.content", taken, found))
    return {**message, "content": parts or ("" if content else parts)}


def _parts(content: Sequence[Any], where: str, taken: Mapping[str, bool], found: list[MediaPart]) -> Iterator[Any]:
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        modality = MODALITY_OF_PART.get(kind, "text") if isinstance(kind, str) else "text"
        if modality == "text":
            yield part
            continue
        if modality in taken:
            place = f"{where}[{index}]"
            found.append(MediaPart(modality, _source(str(kind), part, place), place))
        if taken.get(modality, True):
            yield stub(modality)


def _source(kind: str, part: Mapping[str, Any], where: str) -> Any:
    if kind == "input_audio":
        return _sound(part.get(kind), f"{where}.{kind}")
    if kind in _URLS:
        return _data_url(part.get(_URLS[kind]), f"{where}.{_URLS[kind]}")
    return part.get(kind)


def _data_url(given: Any, where: str) -> str:
    """Addresses in a request are never opened, and files of this machine have no business in them."""
    if isinstance(given, Mapping):
        if given.get("detail") not in (None, "auto"):
            raise RequestError(f"{where}.detail must be auto", param=f"{where}.detail", hint="leave it out")
        where, given = f"{where}.url", given.get("url")
    if not isinstance(given, str):
        raise RequestError(f"{where} must be a data: URL", param=where, hint="data:image/png;base64,...")
    if given[:5].lower() != "data:":
        message = f"{where} is an address or a file, which is not opened"
        raise RequestError(message, param=where, hint="give a data: URL: data:image/png;base64,...")
    return given


def _sound(given: Any, where: str) -> bytes:
    data = given.get("data") if isinstance(given, Mapping) else None
    if not isinstance(data, str):
        raise RequestError(f"{where} needs 'data' as base64 text", param=f"{where}.data")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"{where}.data is not base64: {error}", param=f"{where}.data") from None

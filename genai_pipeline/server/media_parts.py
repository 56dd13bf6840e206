"""Images and sounds in parts of messages, as clients give them: by URL, or as base64 text.

The interfaces make a ``Source`` of each part that has one; ``media_received`` makes bytes of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from genai_pipeline.preprocess.messages import MODALITY_OF_PART
from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.bodies import SHOWN, Fields

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
    raise unsupported_part(at, kind)


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


def unsupported_part(at: str, kind: str) -> ApiError:
    """A 400 for a part of a type that no body may have."""
    message = f"{at}: parts of type '{kind[:SHOWN]}' are not supported; {_SUPPORTED} are"
    return bad_request(message, at, code="unsupported_part")

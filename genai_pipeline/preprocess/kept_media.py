"""Pictures and sounds of a turn that a conversation keeps: parts of its message, with their bytes where they are files.

A file may change or go before the next turn renders the conversation again; what was shown stays what it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from genai_pipeline.preprocess.media import read_media

MOST_BYTES: Final = 512 << 20  # of a file that becomes part of a conversation; programs have limits of their own
_OPTIONS: Final = {"images": "image", "audio": "audio"}


def kept_content(content: Any, options: dict[str, Any]) -> Any:
    """The content of a message with what ``images`` and ``audio`` give, which are taken out of ``options``.

    A plain text comes after its media; parts stay as they are, but for files, which are read. Raises MediaError.
    """
    given = {modality: options.pop(option) for option, modality in _OPTIONS.items() if option in options}
    if isinstance(content, str):
        parts = [
            {"type": modality, modality: _kept(one, modality)}
            for modality, value in given.items()
            for one in _listed(value)
        ]
        return [*parts, {"type": "text", "text": content}] if parts else content
    if not isinstance(content, Sequence):
        return content
    waiting = {modality: list(_listed(value)) for modality, value in given.items()}
    return [_part(part, waiting) for part in content]


def _part(part: Any, waiting: Mapping[str, list[Any]]) -> Any:
    """A part with what it stands for: its own source, or the next one that was given beside the message."""
    modality = str(part.get("type")) if isinstance(part, Mapping) else ""
    if modality not in _OPTIONS.values():
        return part
    source = part.get(modality)
    if source is None and waiting.get(modality):
        source = waiting[modality].pop(0)
    return part if source is None else {**part, modality: _kept(source, modality)}


def _listed(value: Any) -> Sequence[Any]:
    """The sources of an option: one, or a list of them."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _kept(source: Any, modality: str) -> Any:
    """Bytes of a path or an open file; anything else as it is."""
    is_path = isinstance(source, os.PathLike) or (isinstance(source, str) and source[:5].lower() != "data:")
    if is_path or callable(getattr(source, "read", None)):
        return read_media(source, modality, MOST_BYTES)
    return source

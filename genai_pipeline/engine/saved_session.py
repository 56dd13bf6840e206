"""What a session's file has besides its tokens and their state: the messages, and whose slots tokens are.

Anybody may have written such a file. Pictures and sounds that were given as bytes are kept as data: URLs; what is
neither text nor bytes cannot be kept.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from genai_pipeline.engine.session import Mark, Message
from genai_pipeline.errors import CheckpointError
from genai_pipeline.kv.checkpoint import Checkpoint
from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.prefix_keys import Identity

_HINT = "name a file that a session's save wrote"


def written(mark: Mark) -> dict[str, str]:
    """A moment of a session as texts. Raises CheckpointError."""
    identities = [[start, stop, digest.hex()] for start, stop, digest in mark.identities]
    return {
        "messages": json.dumps(list(mark.messages), default=_data_url),
        **({"identities": json.dumps(identities)} if identities else {}),
    }


def read(path: str, found: Checkpoint) -> Mark:
    """The moment in a checkpoint. Raises CheckpointError."""
    if found.num_computed % PAGE_TOKENS:
        raise CheckpointError(
            f"the checkpoint {path} has the state of {found.num_computed} tokens; a session's is of whole pages of "
            f"{PAGE_TOKENS}",
            hint=_HINT,
        )
    return Mark(_messages(path, found), found.tokens, _identities(path, found))


def _data_url(value: Any) -> str:
    """A value in messages that JSON has no form for."""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"data:application/octet-stream;base64,{base64.b64encode(value).decode()}"
    raise CheckpointError(
        f"the conversation has a value of type {type(value).__name__}, which a file cannot keep",
        hint="give pictures and sounds of a session as paths, bytes or data: URLs",
    )


def _messages(path: str, found: Checkpoint) -> tuple[Message, ...]:
    try:
        messages = json.loads(found.extra["messages"])
    except (KeyError, ValueError, RecursionError) as error:
        raise CheckpointError(f"the checkpoint {path} has no messages that can be read", hint=_HINT) from error
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        raise CheckpointError(f"the messages in the checkpoint {path} are no list of messages", hint=_HINT)
    return tuple(messages)


def _identities(path: str, found: Checkpoint) -> tuple[Identity, ...]:
    message = f"the checkpoint {path} does not say whose slots its tokens are"
    try:
        rows = json.loads(found.extra.get("identities", "[]"))
        identities = tuple((int(start), int(stop), binascii.unhexlify(digest)) for start, stop, digest in rows)
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(message, hint=_HINT) from error
    if any(not 0 <= start < stop <= len(found.tokens) for start, stop, _ in identities):
        raise CheckpointError(message, hint=_HINT)
    return identities


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str)

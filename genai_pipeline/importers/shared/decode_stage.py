"""The stage that writes an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def decode_stage(body: Sequence[dict[str, Any]], prompt: Any = "prompt.tokens", **more: Any) -> dict[str, Any]:
    """The decode loop ``generate`` over stages that give ``logits``, with fields of its own besides."""
    return {"id": "generate", "loop": "decode", "prompt": prompt, "body": [*body], "logits": "logits", **more}

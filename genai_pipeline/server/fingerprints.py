"""The fingerprint of each loaded package, found out once."""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

from genai_pipeline.pipeline import Pipeline
from genai_pipeline.server.openai.envelope import fingerprint_of

_known: Final[WeakKeyDictionary[Pipeline, str]] = WeakKeyDictionary()


async def fingerprint(pipe: Pipeline) -> str:
    """What responses say of the package that made them."""
    known = _known.get(pipe)
    if known is None:
        known = _known[pipe] = fingerprint_of(await asyncio.to_thread(getattr, pipe, "identity"))
    return known

"""What every object of one response has in common, and how its tokens are counted."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import genai_pipeline
from genai_pipeline.types import Event, Usage


@dataclass(frozen=True, slots=True)
class Envelope:
    """Id, time, model and what runs it; ``tier`` None for interfaces without service tiers."""

    id: str
    created: int
    model: str
    fingerprint: str
    tier: str | None = None

    @staticmethod
    def make(prefix: str, model: str, fingerprint: str, tier: str | None = None) -> Envelope:
        """A fresh one: the id is ``prefix`` and random digits."""
        return Envelope(f"{prefix}-{secrets.token_hex(12)}", int(time.time()), model, fingerprint, tier)

    def fields(self, kind: str) -> dict[str, Any]:
        """The fields of an object of a kind."""
        tier = {} if self.tier is None else {"service_tier": self.tier}
        made = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**made, "system_fingerprint": self.fingerprint, **tier}


def fingerprint_of(identity: Mapping[str, str]) -> str:
    """What a seed's answers depend on besides the request: the package's files and this software's version."""
    text = f"{identity['digest']} {genai_pipeline.__version__}"
    return f"fp_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Tally:
    """Counts the tokens of the requests that one response is made of.

    Tokens of reasoning are those of a choice up to the last one that releases some.
    """

    def __init__(self) -> None:
        self._tokens: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._reasoning: dict[tuple[int, int], int] = {}
        self._usages: list[Usage] = []

    def note(self, event: Event, prompt: int = 0) -> None:
        """One more event, of the answers to one of several prompts."""
        choice = (prompt, event.index)
        if event.token is not None:
            self._tokens[choice] += 1
        if event.reasoning:
            self._reasoning[choice] = self._tokens[choice]
        if event.usage is not None:
            self._usages.append(event.usage)

    def usage(self) -> dict[str, Any]:
        """The counts in OpenAI's shape; drafts count as predictions where there were any."""
        prompt = sum(usage.prompt_tokens for usage in self._usages)
        completion = sum(usage.completion_tokens for usage in self._usages)
        cached = sum(usage.cached_tokens for usage in self._usages)
        details = {"reasoning_tokens": sum(self._reasoning.values())}
        drafted = [usage for usage in self._usages if usage.drafted_tokens is not None]
        if drafted:
            accepted = sum(usage.accepted_tokens or 0 for usage in drafted)
            details["accepted_prediction_tokens"] = accepted
            details["rejected_prediction_tokens"] = sum(usage.drafted_tokens or 0 for usage in drafted) - accepted
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": details,
        }

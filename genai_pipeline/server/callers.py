"""Who sends a request: the keys that are configured, and what each may use."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from genai_pipeline.server.api_errors import ApiError, too_many
from genai_pipeline.server.limits import NO_LIMITS, Bucket, Clock, KeyLimits

MAX_KEY: Final = 512  # characters of a key that are looked at
ANONYMOUS: Final = "anonymous"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key by name; only the SHA-256 of its secret is kept. ``admin``: it may use metrics and administration too."""

    id: str
    digest: bytes = field(repr=False)
    limits: KeyLimits = NO_LIMITS
    admin: bool = False

    @staticmethod
    def of(id: str, secret: str, limits: KeyLimits = NO_LIMITS, *, admin: bool = False) -> ApiKey:
        """A key by its secret."""
        return ApiKey(id, _digest(secret), limits, admin)


class Caller:
    """Somebody with a key, or anybody where no keys are configured; counts what is used.

    ``trusted``: not a stranger at a route that needs no key.
    """

    def __init__(
        self,
        id: str,
        limits: KeyLimits,
        *,
        admin: bool = False,
        trusted: bool = True,
        clock: Clock = time.monotonic,
    ) -> None:
        self.id = id
        self.limits = limits
        self.admin = admin
        self.trusted = trusted
        self.running = 0
        self._requests = None if limits.requests_per_minute is None else Bucket(limits.requests_per_minute, clock)
        self._tokens = None if limits.tokens_per_minute is None else Bucket(limits.tokens_per_minute, clock)

    @contextmanager
    def request(self) -> Iterator[None]:
        """One request under way. Raises ApiError 429 when it is one too many."""
        self._admit()
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def spend(self, tokens: int) -> None:
        """Count tokens that were used, prompt and answer; debts delay later requests."""
        if self._tokens is not None:
            self._tokens.take(tokens)

    def _admit(self) -> None:
        most = self.limits.concurrent
        if most is not None and self.running >= most:
            raise too_many(f"this key may have {most} requests under way at once", code="concurrency_limit_exceeded")
        for bucket, what in ((self._requests, "requests"), (self._tokens, "tokens")):
            wait = 0.0 if bucket is None else bucket.wait()
            if wait > 0:
                message = f"this key has used up its {what} per minute; try again in {wait:.0f} seconds"
                raise too_many(message, code="rate_limit_exceeded", retry_after=wait)
        if self._requests is not None:
            self._requests.take(1)


class Callers:
    """All callers of a server."""

    def __init__(self, keys: tuple[ApiKey, ...], anonymous: KeyLimits) -> None:
        self._keys = tuple((key.digest, Caller(key.id, key.limits, admin=key.admin)) for key in keys)
        self._anonymous = Caller(ANONYMOUS, anonymous, admin=True)
        self.stranger = self._anonymous if not keys else Caller(ANONYMOUS, NO_LIMITS, trusted=False)

    @property
    def keyed(self) -> bool:
        """Whether a key is needed."""
        return bool(self._keys)

    def identify(self, headers: Mapping[str, str]) -> Caller:
        """Who sends a request with these headers. Raises ApiError 401."""
        if not self._keys:
            return self._anonymous
        given = _given(headers)
        if given is None:
            raise ApiError(401, "no API key: send it as Authorization: Bearer KEY", code="missing_api_key")
        found = self._find(given)
        if found is None:
            raise ApiError(401, "this API key is not known", code="invalid_api_key")
        return found

    def _find(self, given: str) -> Caller | None:
        """The owner of a key; every key is compared, each in constant time, whether or not one fits."""
        digest = _digest(given[: MAX_KEY + 1])
        found = None
        for known, caller in self._keys:
            if hmac.compare_digest(known, digest):
                found = caller
        return found


def _given(headers: Mapping[str, str]) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key", "").strip() or None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", errors="replace")).digest()

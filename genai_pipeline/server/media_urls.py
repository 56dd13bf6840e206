"""Media that clients name by URL: placeholder rules; see ``MediaRules``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MediaRules:
    """Where media may be fetched from: nowhere unless hosts are listed."""

    hosts: tuple[str, ...] = ()
    max_bytes: int = 32 << 20
    seconds: float = 20.0
    redirects: int = 3

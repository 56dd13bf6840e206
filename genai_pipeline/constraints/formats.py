"""The string formats that are enforced, and the patterns for those that must be stricter than the grammar library's.

A format without a pattern here is enforced by the library's own expression for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# RFC 3339, with the days each month has; the year 0000, which most libraries refuse, is left out.
_YEAR = r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_FOURTHS = r"(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = rf"(?:[0-9]{{2}}{_FOURTHS}|{_FOURTHS}00)"
_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = rf"(?:{_YEAR}-{_DAY}|{_LEAP_YEAR}-02-29)"
# Without leap seconds, which few libraries read; the offset is part of RFC 3339's time.
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+-]{_CLOCK})"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

PATTERNS: Final[Mapping[str, str]] = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "hostname": rf"^{_LABEL}(?:\.{_LABEL})*$",  # RFC 1123
}
LENGTHS: Final = {"hostname": 253}  # characters at most
BUILT_IN: Final = frozenset({"duration", "email", "ipv4", "ipv6", "uuid", "uri"})
FORMATS: Final = frozenset(PATTERNS) | BUILT_IN

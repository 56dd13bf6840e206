"""Where drafts come from: the load option ``draft``, and what a package declares under ``speculative:``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genai_pipeline.errors import OptionError
from genai_pipeline.problems import shown

if TYPE_CHECKING:
    from genai_pipeline.metadata.model import SpeculativeSpec

AUTO, OFF, LOOKUP = "auto", "off", "lookup"
DEFAULT_MIN_MATCH = 2
DEFAULT_MAX_MATCH = 4
DEFAULT_TOKENS = 10
DRAFT_TOKENS = 8  # most tokens that a draft model drafts at once


@dataclass(frozen=True, slots=True)
class LookupDrafts:
    """Drafts are looked up after matches of ``min_match`` to ``max_match`` tokens, at most ``tokens`` at once."""

    min_match: int = DEFAULT_MIN_MATCH
    max_match: int = DEFAULT_MAX_MATCH
    tokens: int = DEFAULT_TOKENS


@dataclass(frozen=True, slots=True)
class PackageDrafts:
    """Drafts come from another package: a folder, a metadata file or a known name."""

    package: str
    tokens: int = DRAFT_TOKENS


DraftKind = LookupDrafts | PackageDrafts | None  # None: no drafts


def read_draft(name: str, value: Any) -> str:
    """The load option ``draft``: "auto", "off", "lookup", or what names a package. Raises OptionError."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(given, str) and given and "\0" not in given:
        return given
    raise OptionError(
        f"{name} cannot be {shown(value)}",
        param=name,
        hint='it is "auto", "off", "lookup", or a package: its folder, metadata file or name',
    )


def draft_kind(option: str, declared: SpeculativeSpec | None) -> DraftKind:
    """What a load option means for a package: its own word first, "auto" leaves it to the package."""
    if option == OFF:
        return None
    if option == LOOKUP:
        return _declared_lookup(declared) or LookupDrafts()
    if option != AUTO:
        return PackageDrafts(option)
    if declared is not None and declared.draft is not None:
        return PackageDrafts(declared.draft)
    return _declared_lookup(declared)


def _declared_lookup(declared: SpeculativeSpec | None) -> LookupDrafts | None:
    """The settings of ``speculative: {lookup: ...}``; a bound that is not given moves with the one that is."""
    if declared is None or declared.lookup is None:
        return None
    given = declared.lookup
    least = given.get("min_match", min(DEFAULT_MIN_MATCH, given.get("max_match", DEFAULT_MIN_MATCH)))
    most = given.get("max_match", max(DEFAULT_MAX_MATCH, least))
    return LookupDrafts(least, most, given.get("tokens", DEFAULT_TOKENS))

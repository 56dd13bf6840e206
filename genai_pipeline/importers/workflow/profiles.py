"""``profiles`` of a document: what outputs mean to a caller. Embeddings say how rows are pooled, speech how it is read.

A package says the same with operations. What a profile says that changes the answer and has no counterpart is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport

PROFILES: Final = "profiles"
_POOLINGS: Final = {"mean": "mean", "cls": "cls", "first": "cls", "last": "last", "max": "max"}
_GENERATION: Final = "generation"  # what a decode loop does
_HINT: Final = "write the package by hand: docs/metadata.md"


@dataclass(frozen=True, slots=True)
class Reading:
    """How frames of speech become text: ``labels`` by symbol, as they are written; ``lengths``: the output that says
    how many frames count, by its role."""

    blank: int
    labels: tuple[str, ...]
    logits: str | None = None
    lengths: str | None = None


def report_profiles(root: ConfigNode, report: ImportReport) -> None:
    """A row for each profile that the package does not need, or that it cannot say."""
    for profile in root.mapping(PROFILES).items():
        kind = profile.text("kind", "unnamed")
        if kind in ("embedding", "transcription", _GENERATION):
            report.mapped(profile.file, profile.path, "stages and outputs")
        else:
            report.refused(
                profile.file, profile.path, f"the profile is of the kind '{kind}', which is not mapped", _HINT
            )


def pooling(root: ConfigNode, report: ImportReport) -> str | None:
    """How rows become one vector; None where no profile says it."""
    for profile in _of_kind(root, "embedding"):
        declared = profile.mapping("pooling")
        if not declared.keys:
            continue
        kind = declared.text("kind")
        if kind not in _POOLINGS:
            report.refused(declared.file, declared.path, f"pools by '{kind}', which has no counterpart", _HINT)
        return _POOLINGS.get(kind, "mean")
    return None


def normalizes(root: ConfigNode) -> bool | None:
    """Whether vectors are scaled to length 1; None where no profile says it."""
    said = [profile.boolean("normalize", False) for profile in _of_kind(root, "embedding") if "normalize" in profile]
    return said[0] if said else None


def reading(root: ConfigNode, report: ImportReport) -> Reading | None:
    """How a speech model's frames are read; None where no profile says it."""
    for profile in _of_kind(root, "transcription"):
        decoding = profile.mapping("decoding")
        kind = decoding.text("kind", "none")
        if kind != "ctc":
            report.refused(decoding.file, decoding.path, f"reads frames by '{kind}', which has no counterpart", _HINT)
            continue
        if not decoding.boolean("collapse_repeats", True):
            report.refused(decoding.file, decoding.at("collapse_repeats"), "keeps equal neighbours", _HINT)
        if (decoding.integer("time_axis", 1), decoding.integer("class_axis", 2)) != (1, 2):
            report.refused(
                decoding.file, decoding.at("time_axis"), "frames are not on axis 1, symbols on axis 2", _HINT
            )
        outputs = profile.mapping("outputs")
        lengths = outputs.text(decoding.text("lengths", "-"), "") or None
        return Reading(decoding.integer("blank_id"), _labels(decoding), outputs.text("logits", "") or None, lengths)
    return None


def labels_of(tokens: Mapping[int, str], delimiter: str, ignored: tuple[str, ...]) -> tuple[str, ...]:
    """What is written for each symbol: a space for the one between words, nothing for those that are ignored."""
    count = max(tokens, default=-1) + 1
    texts = (tokens.get(index, "") for index in range(count))
    return tuple("" if text in ignored else " " if delimiter and text == delimiter else text for text in texts)


def _labels(decoding: ConfigNode) -> tuple[str, ...]:
    vocabulary = decoding.mapping("vocabulary")
    tokens = dict(enumerate(_texts(vocabulary, "tokens")))
    tokens.pop(decoding.integer("blank_id"), None)
    return labels_of(tokens, vocabulary.text("word_delimiter", ""), tuple(_texts(vocabulary, "ignored_tokens")))


def _texts(node: ConfigNode, key: str) -> list[str]:
    found = node.get(key)
    return [str(item.value) for item in found.items()] if found is not None else []


def _of_kind(root: ConfigNode, kind: str) -> Iterator[ConfigNode]:
    return (profile for profile in root.mapping(PROFILES).items() if profile.text("kind", "") == kind)

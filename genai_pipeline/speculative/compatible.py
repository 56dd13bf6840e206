"""Whether one package can draft for another: the same tokens under the same ids, and room for them.

A draft package only ever sees token ids, so its ids must mean what they mean to its target: vocabulary and merges of
the two ``tokenizer.json`` are compared by content, and so are the added tokens, control tokens among them. When a text
ends is up to the target alone; the end tokens that the draft package declares do not matter. That its graph has logits
for every id of its tokenizer is checked when the package is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_pipeline.errors import DraftPackageError
from genai_pipeline.graph.plan import ExecutionPlan, StagePlan
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.metadata.paths import resolve_inside


@dataclass(frozen=True, slots=True)
class Ids:
    """What the ids of a tokenizer mean."""

    vocabulary: Mapping[int, str]
    merges: tuple[tuple[str, ...], ...]
    added: Mapping[int, tuple[str, bool]]  # id -> text, whether it is a control token


def check_draft_package(
    target: ExecutionPlan, loop: StagePlan, draft: ExecutionPlan, contexts: tuple[int, int]
) -> StagePlan:
    """The decode loop of ``draft`` that can draft for ``loop`` of ``target``; ``contexts`` are tokens of the two.

    Raises DraftPackageError saying what differs.
    """
    name = draft.package.name
    found = _drafting_loop(draft)
    for difference in differences(_read_ids(target, loop), _read_ids(draft, found)):
        raise DraftPackageError(
            f"'{name}' cannot draft for '{target.package.name}': their tokenizers differ in {difference}",
            hint="a draft package needs the same tokenizer as the package it drafts for",
        )
    if contexts[1] < contexts[0]:
        raise DraftPackageError(
            f"'{name}' holds {contexts[1]} tokens; '{target.package.name}' is loaded with a context of {contexts[0]}",
            hint=f"load it with context_length={contexts[1]}, or use a draft package with a longer context",
        )
    return found


def differences(target: Ids, draft: Ids) -> Iterator[str]:
    """What differs, in words, the most telling first."""
    yield from _first_difference("token", target.vocabulary, draft.vocabulary)
    yield from _first_difference("added token", target.added, draft.added)
    if target.merges != draft.merges:
        pairs = zip(target.merges, draft.merges, strict=False)
        at = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
        if at is None:
            yield f"the number of merges: {len(target.merges)} and {len(draft.merges)}"
        else:
            yield f"merge {at}: {' '.join(target.merges[at])!r} and {' '.join(draft.merges[at])!r}"


def _first_difference(what: str, target: Mapping[int, Any], draft: Mapping[int, Any]) -> Iterator[str]:
    at = min((id for id in target.keys() | draft.keys() if target.get(id) != draft.get(id)), default=None)
    if at is not None:
        yield f"{what} {at}: {_shown(target.get(at))} and {_shown(draft.get(at))}"


def _shown(token: str | tuple[str, bool] | None) -> str:
    if token is None:
        return "none"
    return repr(token) if isinstance(token, str) else f"{token[0]!r} ({'control' if token[1] else 'ordinary'})"


def drafted_loop(target: ExecutionPlan) -> StagePlan:
    """The one decode loop of a package, for which another one drafts. Raises DraftPackageError."""
    loops = [stage for stage in target.root.stages if stage.spec.decode is not None]
    if len(loops) != 1:
        message = f"'{target.package.name}' has {len(loops)} decode loops; a draft package drafts for exactly one"
        raise DraftPackageError(message, hint='load it with draft="off"')
    return loops[0]


def _drafting_loop(draft: ExecutionPlan) -> StagePlan:
    """The one decode loop of a draft package, which reads nothing but its tokens."""
    name = draft.package.name
    loops = [stage for stage in draft.root.stages if stage.spec.decode is not None]
    if len(loops) != 1 or len(draft.root.stages) != 1:
        raise DraftPackageError(
            f"'{name}' cannot draft: it has {len(draft.root.stages)} stages, {len(loops)} of them decode loops",
            hint="a draft package is a text model with one decode loop and nothing else",
        )
    (loop,) = loops
    assert loop.body is not None
    outer = sorted(
        {
            key
            for stage in loop.body.stages
            for key in stage.reads.values()
            if "/" not in key and not key.startswith("loop.")
        }
    )
    if outer:
        raise DraftPackageError(
            f"'{name}' cannot draft: its loop reads {', '.join(outer)} besides its tokens",
            hint="a draft package is a text model whose decode loop reads tokens only",
        )
    return loop


def _read_ids(plan: ExecutionPlan, loop: StagePlan) -> Ids:
    decode = loop.spec.decode
    assert decode is not None
    spec = plan.package.tokenizers.get(decode.tokenizer or "default")
    if spec is None or spec.kind != "tokenizers":
        raise DraftPackageError(
            f"'{plan.package.name}' has no tokenizer that could be compared",
            hint="both packages need a tokenizer of the kind 'tokenizers'",
        )
    return ids_of(plan.package.root, spec)


def ids_of(root: Path, spec: TokenizerSpec) -> Ids:
    """What the ids of a declared tokenizer mean; its file was checked when the package was loaded."""
    file = json.loads(resolve_inside(root, spec.file).read_bytes())
    model = file.get("model", {})
    vocabulary = model.get("vocab", {})
    entries = (
        ((id, text) for text, id in vocabulary.items())
        if isinstance(vocabulary, dict)
        else enumerate(entry[0] if isinstance(entry, list) else entry for entry in vocabulary)
    )
    return Ids(
        vocabulary=dict(entries),
        merges=tuple(_merge(merge) for merge in model.get("merges", ())),
        added={t["id"]: (t["content"], bool(t.get("special"))) for t in file.get("added_tokens", ())},
    )


def _merge(merge: str | list[str]) -> tuple[str, ...]:
    """A merge as a pair; older files write it as one string."""
    return tuple(merge.split(" ") if isinstance(merge, str) else merge)

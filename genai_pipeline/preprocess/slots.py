"""Slots of a prompt: where the features of images and sounds go, and whose they are.

A prompt is first written with one token for each run of slots, then every such token is repeated. Positions count the
tokens of the whole prompt, from 0.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import RequestError
from genai_pipeline.preprocess.items import DIGEST, DIGEST_BYTES, Item

Positions = NDArray[np.int64]
Identity = tuple[int, int, bytes]  # half-open range of slots, digest of what goes there


@dataclass(frozen=True, slots=True)
class Run:
    """Slots in a row: ``count`` times ``text``, whose id is ``token``, for item ``item`` of the input ``name``."""

    name: str
    item: int
    text: str
    token: int
    count: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A prompt's tokens with every slot in place: positions by input, one array per item, and identities, sorted."""

    ids: tuple[int, ...]
    positions: Mapping[str, Sequence[Positions]] = field(default_factory=dict)
    identities: tuple[Identity, ...] = ()


def spread(ids: Iterable[int], runs: Sequence[Run]) -> tuple[int, ...]:
    """The ids with each run's token, which stands there once, as often as the run has slots; ``runs`` in order."""
    slots = {run.token for run in runs}
    following = iter(runs)
    found: list[int] = []
    for token in ids:
        if token in slots:
            run = next(following)
            assert run.token == token, "runs come in the order of their tokens"
            found.extend([token] * run.count)
        else:
            found.append(token)
    assert next(following, None) is None, "every run has its token"
    return tuple(found)


def locate(
    ids: tuple[int, ...], tokens: Mapping[str, int], sizes: Mapping[str, Sequence[int]]
) -> dict[str, list[Positions]]:
    """The positions of each item's slots, by input: every token of an input's placeholder is a slot.

    ``sizes``: number of slots of each item. Raises RequestError where the tokens have another number of them.
    """
    whole = np.asarray(ids, np.int64)
    found: dict[str, list[Positions]] = {}
    for name, token in tokens.items():
        places = np.flatnonzero(whole == token).astype(np.int64)
        wanted = sum(sizes[name])
        if len(places) != wanted:
            message = f"the prompt has {len(places)} slots for {name}, and its {len(sizes[name])} items need {wanted}"
            raise RequestError(message, param=name, hint="tokens hold every slot: as many as the items have features")
        ends = np.cumsum([0, *sizes[name]])
        found[name] = [places[start:stop] for start, stop in itertools.pairwise(ends)]
    return found


def identities(
    positions: Mapping[str, Sequence[Positions]], items: Mapping[str, Sequence[Item]], salt: bytes
) -> tuple[Identity, ...]:
    """What stands in each range of slots: a digest of the item, of the part of it, and of ``salt``."""
    found: list[Identity] = []
    for name, places in positions.items():
        for item, slots in zip(items[name], places, strict=True):
            for first, start, stop in _ranges(slots):
                found.append((start, stop, _digest(item[DIGEST], name, first, len(slots), salt)))
    return tuple(sorted(found))


def _ranges(slots: Positions) -> Iterator[tuple[int, int, int]]:
    """Ranges of slots in a row, with the number of the item's slots before each."""
    if not len(slots):
        return
    breaks = np.flatnonzero(np.diff(slots) != 1) + 1
    for first, last in zip([0, *breaks], [*breaks, len(slots)], strict=True):
        yield int(first), int(slots[first]), int(slots[last - 1]) + 1


def _digest(item: bytes, name: str, first: int, total: int, salt: bytes) -> bytes:
    digest = hashlib.blake2b(item, digest_size=DIGEST_BYTES, person=b"slots")
    digest.update(f"{name} {first} {total} ".encode() + salt)
    return digest.digest()

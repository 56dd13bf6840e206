"""What tells one token of a prefix from another: its id, or whose slot it is and the how manieth of it.

All slots of images have one token, and what stands in them differs. A slot's key is the digest of its item with the
slot's number, so prefixes with different pictures share no state, from the first differing slot on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

Identity = tuple[int, int, bytes]  # half-open range of tokens that are slots, digest of what goes there


def prefix_keys(tokens: Sequence[int], identities: Iterable[Identity] = ()) -> Sequence[Hashable]:
    """The keys of a prefix: the tokens themselves where none of them is a slot."""
    ranges = [identity for identity in identities if identity[0] < len(tokens)]
    if not ranges:
        return tokens
    keys: list[Hashable] = list(tokens)
    for start, stop, digest in ranges:
        for place in range(start, min(stop, len(keys))):
            keys[place] = (digest, place - start)
    return keys
